"""Evaluation: a model answers held-out environments, a judge scores the answers, and the mean reward gets an interval.

OUT.jsonl holds one answer a line, OUT.json the summary; while it runs, OUT.partial.jsonl holds what is finished, one batch of environments
a line. A second call with the same arguments goes on from there; the samples are those of an undisturbed run, since a batch's seed depends
on its place alone. An answer's entropy (nats a token) is minus the mean log-prob of its tokens at the sampling temperature: one sample's
estimate, without bias for its positions, of the entropy of the distribution that was drawn from. Its coverage is what its verdicts on the
rubric make, weights included, without the general criteria: the figure of the paper's table 1.
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

from papergym.checkpoint import file_sha256
from papergym.environment import Environment
from papergym.errors import InputError
from papergym.files import append_jsonl, exclusive, read_json, read_jsonl, reopen_jsonl, write_json, write_jsonl
from papergym.judge.answer import is_refusal, plan_of
from papergym.judge.rescoring import read_records
from papergym.judge.scoring import Judge, combine, judge_record, score_all
from papergym.model.generation import Engine, SamplingParams
from papergym.model.lora import ADAPTER_FILES
from papergym.model.prompts import student_messages
from papergym.model.tokenizer import Tokenizer
from papergym.progress import progress_bar
from papergym.seeds import derive_seed
from papergym.statistics import estimate

Answers = list[dict[str, Any]]
JudgeSpec = str | Mapping[str, Any]
_LATER = ("weights_sha256", "dtype")  # arguments that files of earlier versions do not tell


def evaluate(
    open_engine: Callable[[], Engine],
    tokenizer: Tokenizer,
    environments: Sequence[Environment],
    judge: Judge | None,
    *,
    out: Path,
    model: str,
    judge_spec: JudgeSpec | None,
    adapter: str | Path | None = None,
    samples: int = 8,
    sampling: SamplingParams,
    thinking: bool = True,
    batch_size: int = 4,
    recorded: Mapping[str, Any] | None = None,
) -> tuple[Answers, dict[str, Any]]:
    """Answers every environment `samples` times, scores the answers, writes OUT.jsonl and OUT.json, and returns (answers, summary).

    open_engine: called once, and only when something is left to answer. judge: None leaves the answers without verdicts. out: path of both
    files without their endings; its name is the row's. model, adapter, judge_spec and what else is recorded are compared with an earlier
    call's, they open nothing. sampling: its n is replaced by samples; its seed (None counts as 0) fixes every sample. batch_size:
    environments a call of the engine. Raises InputError when another process writes these files, and when files of that name were made
    with other arguments, naming the first that differs.
    """
    prompts = [tokenizer.chat(student_messages(environment), thinking=thinking) for environment in environments]
    sampling = replace(sampling, n=samples, seed=sampling.seed or 0)
    arguments = {
        "model": model,
        "adapter": None if adapter is None else str(adapter),
        "adapter_sha256": None if adapter is None else _digest(*((Path(adapter) / name).read_bytes() for name in ADAPTER_FILES)),
        "samples": samples,
        "sampling": asdict(sampling),
        "thinking": thinking,
        "batch_size": batch_size,
        "prompts_sha256": _digest(orjson.dumps(prompts)),
        **(recorded or {}),
    }
    asked = {
        first: [environment.id for environment in environments[first : first + batch_size] for _ in range(samples)]
        for first in range(0, len(environments), batch_size)
    }
    engines: list[Engine] = []

    def answer(first: int) -> Answers:
        if not engines:
            engines.append(open_engine())
        chosen = slice(first, first + batch_size)
        params = replace(sampling, seed=derive_seed(sampling.seed or 0, first))
        return _sample(engines[0], tokenizer, environments[chosen], prompts[chosen], params)

    return _evaluate(answer, asked, environments, judge, judge_spec, out, arguments, batch_size)


def score_written(
    path: Path, environments: Sequence[Environment], judge: Judge, *, out: Path, judge_spec: JudgeSpec, batch_size: int = 8
) -> tuple[Answers, dict[str, Any]]:
    """The same for answers that are written already, one a line as read_records takes them, by `papergym generate` or anything else.

    Raises InputError as evaluate does, and naming an environment that has no answer.
    """
    if path.absolute() == out.with_name(f"{out.name}.jsonl").absolute():
        raise InputError(f"{out}: the answers are there; choose another place for their scores")
    written: dict[str, Answers] = {environment.id: [] for environment in environments}
    for record in read_records(path, written):
        written[record["environment"]].append(record)
    if unanswered := [name for name, answers in written.items() if not answers]:
        raise InputError(f"{path}: no answer to environment {unanswered[0]!r}, and to {len(unanswered) - 1} others")
    arguments = {"model": path.stem, "adapter": None, "answers_sha256": _digest(path.read_bytes()), "batch_size": batch_size}

    def answer(first: int) -> Answers:
        return [record for environment in environments[first : first + batch_size] for record in written[environment.id]]

    asked = {first: [record["environment"] for record in answer(first)] for first in range(0, len(environments), batch_size)}
    return _evaluate(answer, asked, environments, judge, judge_spec, out, arguments, batch_size)


def read_row(out: Path, arguments: Mapping[str, Any]) -> tuple[Answers, dict[str, Any]]:
    """The answers and the summary of a finished evaluation.

    Raises InputError when a file is not what was written, or was made with other arguments than these.
    """
    answers_path, summary_path = (out.with_name(out.name + end) for end in (".jsonl", ".json"))
    summary = read_json(summary_path)
    if not isinstance(summary, dict) or not isinstance(summary.get("arguments"), dict):
        raise InputError(f"{summary_path}: this is no summary of an evaluation; remove it and {answers_path} to evaluate again")
    if not answers_path.is_file():
        raise InputError(f"{answers_path}: missing, though {summary_path} is there; remove that to evaluate again")
    _refuse_others(summary_path, summary["arguments"], arguments)
    written = summary.get("written")  # not in the summaries of earlier versions
    if written is not None and (not isinstance(written, dict) or written.get("sha256") != file_sha256(answers_path)):
        number = f"{written.get('answers')} " if isinstance(written, dict) else ""
        raise InputError(f"{answers_path}: not the {number}answers that {summary_path} is about; remove both to evaluate again")
    return [record for _, record in read_jsonl(answers_path)], summary


def _evaluate(
    answer: Callable[[int], Answers],
    asked: Mapping[int, list[str]],
    environments: Sequence[Environment],
    judge: Judge | None,
    judge_spec: JudgeSpec | None,
    out: Path,
    arguments: dict[str, Any],
    batch_size: int,
) -> tuple[Answers, dict[str, Any]]:
    """answer(first): the answers to a batch of environments, by the number of its first; asked: the environment of each."""
    arguments["judge"] = None if judge is None or judge_spec is None else judge_record(judge_spec, judge)
    arguments["environments_sha256"] = environments_digest(environments)
    answers_path, summary_path, partial_path = (out.with_name(out.name + end) for end in (".jsonl", ".json", ".partial.jsonl"))
    if summary_path.exists():
        return read_row(out, arguments)
    with (
        exclusive(partial_path, f"{out}: another process is writing this evaluation; wait for it or choose another place"),
        progress_bar(f"eval {out.name}", len(environments)) as bar,
    ):
        batches = _resume(partial_path, arguments, asked)
        for first in range(0, len(environments), batch_size):
            chosen = environments[first : first + batch_size]
            if first not in batches:
                started = time.perf_counter()
                made = _score(answer(first), {environment.id: environment for environment in chosen}, judge)
                batches[first] = {"answers": made, "seconds": time.perf_counter() - started}
                append_jsonl(partial_path, [{"first": first, **batches[first]}])
            bar.advance(len(chosen))
        answers = [record for first in sorted(batches) for record in batches[first]["answers"]]
        summary: dict[str, Any] = {
            "row": out.name,
            **{key: arguments[key] for key in ("model", "adapter")},
            "judge": judge_spec,
            **summarise(answers),
            **{key: arguments[key] for key in ("samples", "sampling", "thinking") if key in arguments},
            "seconds": sum(batch["seconds"] for batch in batches.values()),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in ("papergym", "torch")}},
            "arguments": arguments,
        }
        write_jsonl(answers_path, answers)
        summary["written"] = {"answers": len(answers), "sha256": file_sha256(answers_path)}
        partial_path.unlink()
        write_json(summary_path, summary)  # last: where it is, everything is done
    return answers, summary


def environments_digest(environments: Sequence[Environment]) -> str:
    """SHA-256 of environments in their order."""
    return _digest(*(orjson.dumps(environment.to_record()) for environment in environments))


def summarise(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means with bootstrap intervals over environments of reward, coverage, tokens and entropy, share of truncated answers, and counts.

    unscored: answers without a reward, which are left out of its mean. unanswered: responses without a plan, which are scored as empty;
    refused: plans that decline to answer, which are scored as what they say.
    """
    values: dict[str, dict[str, list[float | None]]] = {name: {} for name in ("reward", "coverage", "tokens", "entropy")}
    for name, by_environment in values.items():
        for answer in answers:
            by_environment.setdefault(answer["environment"], []).append(answer.get(name))
    return {
        "environments": len(values["reward"]),
        **{name: estimate(_environment_means(by_environment)) for name, by_environment in values.items()},
        "truncated": sum(answer["finish_reason"] == "length" for answer in answers) / len(answers),
        "unscored": sum(answer.get("reward") is None for answer in answers),
        "unanswered": sum(not answer["plan"] for answer in answers),
        "refused": sum(is_refusal(answer["plan"] or "") for answer in answers),
    }


def _environment_means(values: Mapping[str, Sequence[float | None]]) -> list[float]:
    """Each environment's mean over its scored samples, which share its difficulty and so are not independent; none without any."""
    scored = [[value for value in samples if value is not None] for samples in values.values()]
    return [sum(samples) / len(samples) for samples in scored if samples]


def _sample(
    engine: Engine, tokenizer: Tokenizer, environments: Sequence[Environment], prompts: list[list[int]], params: SamplingParams
) -> Answers:
    answers = []
    for environment, group in zip(environments, engine.generate(prompts, params), strict=True):
        for sample, completion in enumerate(group):
            response = tokenizer.decode(completion.token_ids)
            answers.append(
                {
                    "environment": environment.id,
                    "sample": sample,
                    "response": response,
                    "plan": plan_of(response) or "",
                    "tokens": len(completion.token_ids),
                    "finish_reason": completion.finish_reason,
                    "entropy": -sum(completion.logprobs) / max(1, len(completion.logprobs)),
                }
            )
    return answers


def _score(answers: Answers, environments: Mapping[str, Environment], judge: Judge | None) -> Answers:
    """The answers with verdicts, rewards and coverage; without a judge as they are."""
    if judge is None:
        return answers
    # A response that never leaves its thinking block is scored as the empty plan is.
    scores = score_all(judge, [(environments[answer["environment"]], answer["plan"]) for answer in answers])
    return [
        answer
        | {"specialised": list(scored.specialised), "general": list(scored.general), "reward": scored.reward}
        | {"coverage": combine(scored.specialised, (), 1.0, [c.weight for c in environments[answer["environment"]].rubric])}
        for answer, scored in zip(answers, scores, strict=True)
    ]


def _resume(partial_path: Path, arguments: Mapping[str, Any], asked: Mapping[int, list[str]]) -> dict[int, dict[str, Any]]:
    """Batches finished earlier, by their first environment; starts the file if it is empty. A line that was cut is dropped."""
    records = reopen_jsonl(partial_path, lambda record: True)
    if not records:
        append_jsonl(partial_path, [{"arguments": arguments}])
        return {}
    _refuse_others(partial_path, records[0].get("arguments"), arguments)
    batches: dict[int, dict[str, Any]] = {}
    for number, batch in enumerate(records[1:], 2):
        if not _is_batch(batch, asked) or batch["first"] in batches:
            raise InputError(f"{partial_path}, line {number}: not a batch of this evaluation; remove the file to evaluate again")
        batches[batch.pop("first")] = batch
    return batches


def _is_batch(batch: Mapping[str, Any], asked: Mapping[int, list[str]]) -> bool:
    first, answers, seconds = (batch.get(name) for name in ("first", "answers", "seconds"))
    return (
        type(first) is int
        and first in asked
        and isinstance(seconds, int | float)
        and isinstance(answers, list)
        and all(isinstance(answer, dict) and _is_answer(answer) for answer in answers)
        and [answer["environment"] for answer in answers] == asked[first]
    )


def _is_answer(answer: Mapping[str, Any]) -> bool:
    numbers = (answer.get(name) for name in ("reward", "coverage", "tokens", "entropy"))
    return (
        {"environment", "plan", "finish_reason"} <= answer.keys()
        and isinstance(answer["plan"], str | None)
        and all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in numbers)
    )


def _refuse_others(path: Path, made_with: Any, arguments: Mapping[str, Any]) -> None:
    """Raises InputError if a file was made with other arguments than these."""
    arguments = orjson.loads(orjson.dumps(arguments))
    for key, value in arguments.items():
        before = made_with.get(key) if isinstance(made_with, Mapping) else None
        if before != value and not (before is None and key in _LATER):
            raise InputError(f"{path}: it was made with {key} {before!r}, not {value!r}; remove it or write to another place")


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()
