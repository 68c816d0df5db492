"""One rank of the vocabulary-parallel tests: `python vocab_parallel_worker.py RANK DIRECTORY`; the directory holds the cases."""

import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from papergym.kernels.linear_jsd.parallel import vocab_parallel_linear_jsd

WORLD = 2


def run(case: dict, rank: int) -> dict:
    rows = slice(0, case["cut"]) if rank == 0 else slice(case["cut"], None)  # shards of different heights
    student = case["student"].clone().requires_grad_()
    shard = case["student_head"][rows].clone().requires_grad_(case["trained"])
    out = vocab_parallel_linear_jsd(
        student, shard, case["teacher"], case["teacher_head"][rows], mask=case["mask"], workspace_bytes=17 << 20, **case["options"]
    )
    (out.divergence * case["weights"]).sum().backward()
    return {**vars(out), "divergence": out.divergence.detach(), "hidden": student.grad, "head": shard.grad}


def main(rank: int, directory: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(directory / "store"), WORLD)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD, timeout=timedelta(minutes=3))
    results = [run(case, rank) for case in torch.load(directory / "cases.pt")]
    torch.save(results, directory / f"results-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
