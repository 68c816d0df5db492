"""Times vLLM's sampling, for `papergym bench step`, in an installation that has vLLM. A question as JSON in, an answer as JSON out.

In: path, adapter (a directory or null) and its rank, dtype, prompts (a list of batches of prompts of token ids), samples, tokens, repeats.
Out: seconds, a list for each batch, after a warm-up, and vLLM's version.
"""

import json
import os
import sys
import time

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]  # without the list the head is wrapped too


def main() -> None:
    asked = json.load(sys.stdin)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine in this process: no time lost between processes
    import vllm

    lora: dict[str, object] = {}
    request = None
    if asked["adapter"] is not None:
        from vllm.lora.request import LoRARequest

        lora = {"enable_lora": True, "max_lora_rank": asked["rank"], "max_loras": 1, "lora_target_modules": PROJECTIONS}
        request = LoRARequest("adapter", 1, asked["adapter"])
    longest = max(len(prompt) for batch in asked["prompts"] for prompt in batch) + asked["tokens"]
    llm = vllm.LLM(
        asked["path"],
        dtype=asked["dtype"],
        skip_tokenizer_init=True,
        max_model_len=longest,
        kv_cache_memory_bytes=1 << 30,
        enable_prefix_caching=True,
        distributed_executor_backend="uni",
        **lora,
    )
    settings = vllm.SamplingParams(n=asked["samples"], temperature=1.0, max_tokens=asked["tokens"], ignore_eos=True, detokenize=False)
    seconds = []
    for batch in asked["prompts"]:
        prompts = [{"prompt_token_ids": prompt} for prompt in batch]
        taken = []
        for _ in range(asked["repeats"] + 1):
            llm.reset_prefix_cache()
            start = time.perf_counter()
            groups = llm.generate(prompts, settings, use_tqdm=False, lora_request=request)
            taken.append(time.perf_counter() - start)
            drawn = sum(len(output.token_ids) for group in groups for output in group.outputs)
            if drawn != len(batch) * asked["samples"] * asked["tokens"]:
                raise RuntimeError(f"vLLM drew {drawn} tokens")
        seconds.append(taken[1:])
    print(json.dumps({"seconds": seconds, "version": vllm.__version__}))


if __name__ == "__main__":
    main()
