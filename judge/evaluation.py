"""Evaluation: a model answers held-out environments, a judge scores the answers, and the mean reward gets an interval.

OUT.jsonl holds one answer a line, OUT.json the summary; while it runs, OUT.partial.jsonl holds what is finished, one batch of environments
a line. A second call with the same arguments goes on from there; the samples are those of an undisturbed run, since a batch's seed depends
on its place alone. An answer's entropy (nats a token) is minus the mean log-prob of its tokens at the sampling temperature: one sample's
estimate, without bias for its positions, of the entropy of the distribution that was drawn from.
"""

import hashlib
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from papergym.environment import Environment
from papergym.errors import InputError
from papergym.files import append_jsonl, exclusive, read_json, read_jsonl, reopen_jsonl, write_json, write_jsonl
from papergym.judge.answer import plan_of
from papergym.judge.scoring import Judge, score_all
from papergym.model.generation import Engine, SamplingParams
from papergym.model.lora import ADAPTER_FILES
from papergym.model.prompts import student_messages
from papergym.model.tokenizer import Tokenizer
from papergym.progress import progress_bar
from papergym.seeds import derive_seed
from papergym.statistics import estimate


def evaluate(
    open_engine: Callable[[], Engine],
    tokenizer: Tokenizer,
    environments: Sequence[Environment],
    judge: Judge,
    *,
    out: Path,
    model: str,
    judge_spec: str | Mapping[str, Any],
    adapter: str | Path | None = None,
    samples: int = 8,
    sampling: SamplingParams,
    thinking: bool = True,
    batch_size: int = 4,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Answers every environment `samples` times, scores the answers, writes OUT.jsonl and OUT.json, and returns (answers, summary).

    open_engine: called once, and only when something is left to answer. out: path of both files without their endings; its name is the
    row's. model, adapter and judge_spec are recorded and compared, they open nothing. sampling: its n is replaced by samples; its seed
    (None counts as 0) fixes every sample. batch_size: environments a call of the engine. Raises InputError when another process writes
    these files, and when files of that name were made with other arguments, naming the first that differs.
    """
    prompts = [tokenizer.chat(student_messages(environment), thinking=thinking) for environment in environments]
    sampling = replace(sampling, n=samples, seed=sampling.seed or 0)
    arguments = {
        "model": model,
        "adapter": None if adapter is None else str(adapter),
        "adapter_sha256": None if adapter is None else _digest(*((Path(adapter) / name).read_bytes() for name in ADAPTER_FILES)),
        "judge": judge_spec if isinstance(judge_spec, str) else dict(judge_spec),
        "samples": samples,
        "sampling": asdict(sampling),
        "thinking": thinking,
        "batch_size": batch_size,
        "environments_sha256": _digest(*(orjson.dumps(environment.to_record()) for environment in environments)),
        "prompts_sha256": _digest(orjson.dumps(prompts)),
    }
    answers_path, summary_path, partial_path = (out.with_name(out.name + end) for end in (".jsonl", ".json", ".partial.jsonl"))
    if summary_path.exists():
        summary = read_json(summary_path)
        _refuse_others(summary_path, summary.get("arguments") if isinstance(summary, dict) else None, arguments)
        return [record for _, record in read_jsonl(answers_path)], summary
    with (
        exclusive(partial_path, f"{out}: another process is writing this evaluation; wait for it or choose another place"),
        progress_bar(f"eval {out.name}", len(environments)) as bar,
    ):
        batches, engine = _resume(partial_path, arguments), None
        for first in range(0, len(environments), batch_size):
            chosen = slice(first, first + batch_size)
            if first not in batches:
                engine = engine or open_engine()
                params = replace(sampling, seed=derive_seed(sampling.seed or 0, first))
                batches[first] = _batch(engine, tokenizer, environments[chosen], prompts[chosen], judge, params)
                append_jsonl(partial_path, [{"first": first, **batches[first]}])
            bar.advance(len(environments[chosen]))
        answers = [answer for first in sorted(batches) for answer in batches[first]["answers"]]
        summary = {
            "row": out.name,
            **{key: arguments[key] for key in ("model", "adapter", "judge")},
            **summarise(answers),
            **{key: arguments[key] for key in ("samples", "sampling", "thinking")},
            "seconds": sum(batch["seconds"] for batch in batches.values()),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in ("papergym", "torch")}},
            "arguments": arguments,
        }
        write_jsonl(answers_path, answers)
        partial_path.unlink()
        write_json(summary_path, summary)  # last: where it is, everything is done
    return answers, summary


def summarise(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means with bootstrap intervals over environments of reward, tokens and entropy, share of truncated answers, and counts.

    unscored: answers without a reward, which are left out of the mean. unanswered: responses without a plan, which are scored as empty.
    """
    rewards: dict[str, list[float | None]] = {}
    tokens: dict[str, list[float | None]] = {}
    entropies: dict[str, list[float | None]] = {}
    for answer in answers:
        rewards.setdefault(answer["environment"], []).append(answer["reward"])
        tokens.setdefault(answer["environment"], []).append(answer["tokens"])
        entropies.setdefault(answer["environment"], []).append(answer["entropy"])
    return {
        "environments": len(rewards),
        "reward": estimate(_environment_means(rewards)),
        "tokens": estimate(_environment_means(tokens)),
        "entropy": estimate(_environment_means(entropies)),
        "truncated": sum(answer["finish_reason"] == "length" for answer in answers) / len(answers),
        "unscored": sum(answer["reward"] is None for answer in answers),
        "unanswered": sum(not answer["plan"] for answer in answers),
    }


def _environment_means(values: Mapping[str, Sequence[float | None]]) -> list[float]:
    """Each environment's mean over its scored samples, which share its difficulty and so are not independent; none without any."""
    scored = [[value for value in samples if value is not None] for samples in values.values()]
    return [sum(samples) / len(samples) for samples in scored if samples]


def _batch(
    engine: Engine,
    tokenizer: Tokenizer,
    environments: Sequence[Environment],
    prompts: list[list[int]],
    judge: Judge,
    params: SamplingParams,
) -> dict[str, Any]:
    """The answers of a few environments, scored, and the seconds it took."""
    started = time.perf_counter()
    answers: list[dict[str, Any]] = []
    items = []
    for environment, group in zip(environments, engine.generate(prompts, params), strict=True):
        for sample, completion in enumerate(group):
            response = tokenizer.decode(completion.token_ids)
            plan = plan_of(response)
            items.append((environment, plan))
            answers.append(
                {
                    "environment": environment.id,
                    "sample": sample,
                    "response": response,
                    "plan": plan or "",
                    "tokens": len(completion.token_ids),
                    "finish_reason": completion.finish_reason,
                    "entropy": -sum(completion.logprobs) / max(1, len(completion.logprobs)),
                }
            )
    for answer, scored in zip(answers, score_all(judge, items), strict=True):
        answer |= {"specialised": list(scored.specialised), "general": list(scored.general), "reward": scored.reward}
    return {"answers": answers, "seconds": time.perf_counter() - started}


def _resume(partial_path: Path, arguments: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Batches finished earlier, by their first environment; starts the file if it is empty. A line that was cut is dropped."""
    records = reopen_jsonl(partial_path, lambda record: True)
    if not records:
        append_jsonl(partial_path, [{"arguments": arguments}])
        return {}
    _refuse_others(partial_path, records[0].get("arguments"), arguments)
    return {batch.pop("first"): batch for batch in records[1:]}


def _refuse_others(path: Path, made_with: Any, arguments: Mapping[str, Any]) -> None:
    """Raises InputError if a file was made with other arguments than these."""
    arguments = orjson.loads(orjson.dumps(arguments))
    for key, value in arguments.items():
        before = made_with.get(key) if isinstance(made_with, Mapping) else None
        if before != value:
            raise InputError(f"{path}: it was made with {key} {before!r}, not {value!r}; remove it or write to another place")


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()
