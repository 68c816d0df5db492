"""What `papergym compare` does: the answers of several models, compared by language models question by question."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations, product
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

from papergym.config import from_mapping
from papergym.environment import Environment, read_environments
from papergym.errors import InputError
from papergym.files import append_jsonl, atomic_write, exclusive, reopen_jsonl, write_json
from papergym.judge.ballots import CRITERIA, SCORES, Ballot, ballot_request, read_ballot
from papergym.judge.llm import LlmJudgeConfig
from papergym.judge.rescoring import check_lines, check_same, digest, read_rows
from papergym.judge.scoring import judge_options
from papergym.judge.tables import markdown_table, shown
from papergym.judge.win_rates import OVERALL, Comparison, arrangement, is_split, vote, win_rates
from papergym.model.generation.chat_models import ChatModel, open_chat_model
from papergym.progress import progress_bar

BATCH = 32


class Comparer:
    """A language model that compares plans, from the same specification as the judge of kind "llm"."""

    def __init__(self, config: LlmJudgeConfig, model: ChatModel):
        self._config, self._model = config, model

    def ballots(self, shown_plans: Sequence[tuple[str, Sequence[str]]]) -> list[Ballot | None]:
        """A ballot on each (question, plans in the order of their labels); None for one that stayed unreadable after all retries."""
        config = self._config
        ballots: list[Ballot | None] = [None] * len(shown_plans)
        for attempt in range(config.retries + 1):
            asked = [index for index, ballot in enumerate(ballots) if ballot is None]
            requests = [
                replace(
                    ballot_request(*shown_plans[index], attempt, config.thinking_tokens), temperature=config.temperature, seed=config.seed
                )
                for index in asked
            ]
            for index, reply in zip(asked, self._model.complete(requests) if requests else (), strict=True):
                for text in reply.texts:
                    ballots[index] = read_ballot(text.text, len(shown_plans[index][1]))
        return ballots


def open_comparer(spec: str | Mapping[str, Any]) -> Comparer:
    """A comparer from the specification of a judge. Raises InputError for a judge that is no language model."""
    options = judge_options(spec)
    if (kind := options.pop("kind")) != "llm":
        raise InputError(f"judge {spec!r}: plans are compared by a language model, of kind 'llm', not {kind!r}")
    config = from_mapping(LlmJudgeConfig, options, prefix="judge.")
    return Comparer(config, open_chat_model(config.model))


def compare_answers(
    answers: Sequence[Path],
    environments: Path,
    specs: Sequence[str],
    out: Path,
    *,
    tie_breaker: str | None = None,
    pairs: bool = False,
    orders: int = 1,
    seed: int = 0,
) -> str:
    """Compares the first answers of each file, a model each, to the questions that all have answered; returns what to print.

    pairs: every two models by themselves instead of all at once. orders: how many of the k arrangements of a question are shown.
    tie_breaker: a judge that votes where the others are split. seed: of the arrangements. OUT/ballots.jsonl holds every ballot with the
    models in the order of their labels, compare.json and compare.md the results; a second call goes on behind the last ballot.
    """
    known = {environment.id: environment for environment in read_environments(environments)}
    plans = _first_plans(answers, known)
    questions = [name for name in known if all(name in of for of in plans.values())]
    if not questions:
        raise InputError(f"{', '.join(map(str, answers))}: no question was answered in all of these files")
    groups = list(combinations(plans, 2)) if pairs else [tuple(plans)]
    shown_orders = range(min(orders, len(groups[0])))
    judges = [Path(spec).stem for spec in specs]
    breaker = Path(tie_breaker).stem if tie_breaker is not None else None
    named = dict(zip(judges, specs, strict=True)) | ({breaker: tie_breaker} if breaker and tie_breaker else {})
    if len(named) < len(specs) + (breaker is not None):
        raise InputError(f"judges {', '.join(map(str, named))}: each needs a name of its own, that of its file")
    made_of = {
        "judges": {name: judge_options(spec) for name, spec in named.items()},
        "plans": digest([plans]),
        "environments": digest([known[name].to_record() for name in questions]),
        "arrangement": {"pairs": pairs, "orders": len(shown_orders), "seed": seed},
    }
    with exclusive(out / ".lock", f"{out}: another process is comparing into it; wait for it"):
        check_same(out / "settings.json", made_of)
        booth = _Booth(out / "ballots.jsonl", {name: open_comparer(spec) for name, spec in named.items()}, plans, known, seed)
        booth.cast([_Job(*job) for job in product(judges, groups, questions, shown_orders)])
        if breaker is not None:
            split = [(group, question) for group, question in product(groups, questions) if booth.is_split(group, question)]
            booth.cast([_Job(breaker, group, question, order) for (group, question), order in product(split, shown_orders)])
        booth.close()
    figures = [win_rates(booth.comparisons(group), group, breaker) for group in groups]
    write_json(out / "compare.json", {"seed": seed, "orders": len(shown_orders), "comparisons": figures})
    text = "\n".join(map(markdown, figures))
    with atomic_write(out / "compare.md") as file:
        file.write(text.encode())
    return text


def _first_plans(answers: Sequence[Path], environments: Mapping[str, Environment]) -> dict[str, dict[str, str]]:
    """{model: {environment: plan}}, "" where the response had no answer."""
    rows = read_rows(answers, environments)
    if not 2 <= len(rows) <= len(ascii_uppercase):
        raise InputError(f"{len(rows)} files of answers: from two to {len(ascii_uppercase)} can be compared")
    plans: dict[str, dict[str, str]] = {model: {} for model in rows}
    for model, row in rows.items():
        for answer in row:
            plans[model].setdefault(answer.environment, answer.plan or "")
    return plans


class _Job(NamedTuple):
    judge: str
    group: tuple[str, ...]
    question: str
    order: int


class _Booth:
    """Where ballots are cast: the file of ballots, and what is needed to make the next one."""

    def __init__(
        self,
        path: Path,
        comparers: Mapping[str, Comparer],
        plans: Mapping[str, Mapping[str, str]],
        environments: Mapping[str, Environment],
        seed: int,
    ):
        self._path, self._comparers, self._plans, self._environments, self._seed = path, comparers, plans, environments, seed
        self._earlier = reopen_jsonl(path, lambda record: True)  # ballots of an earlier call, in the order of the jobs
        self._keys: list[dict[str, Any]] = []  # what the lines of the file are about
        self._cast: list[Comparison] = []

    def cast(self, jobs: Sequence[_Job]) -> None:
        """Adds the jobs' ballots, those of an earlier call first. Raises InputError naming a line that is no such ballot."""
        asked = [Comparison(job.judge, job.question, job.order, self._arranged(job), None) for job in jobs]
        self._keys += [{name: value for name, value in _plain(one).items() if name != "ballot"} for one in asked]
        check_lines(self._path, self._earlier[: len(self._keys)], self._keys, _wrong_ballot)
        known = self._earlier[len(self._cast) : len(self._keys)]
        self._cast += map(_comparison, known)
        jobs = jobs[len(known) :]
        with progress_bar("compare", len(jobs)) as bar:
            while jobs:
                batch = [job for job in jobs[:BATCH] if job.judge == jobs[0].judge]
                arranged = list(map(self._arranged, batch))
                shown_plans = [
                    (self._environments[job.question].question, [self._plans[model][job.question] for model in models])
                    for job, models in zip(batch, arranged, strict=True)
                ]
                ballots = self._comparers[batch[0].judge].ballots(shown_plans)
                made = [
                    Comparison(job.judge, job.question, job.order, models, ballot)
                    for job, models, ballot in zip(batch, arranged, ballots, strict=True)
                ]
                append_jsonl(self._path, map(asdict, made))
                self._cast += made
                jobs = jobs[len(batch) :]
                bar.advance(len(batch))

    def close(self) -> None:
        """Raises InputError if the file has more ballots than were cast."""
        check_lines(self._path, self._earlier, self._keys, _wrong_ballot)

    def _arranged(self, job: _Job) -> tuple[str, ...]:
        return arrangement(job.question, job.group, self._seed, job.order)

    def comparisons(self, group: Sequence[str]) -> list[Comparison]:
        return [one for one in self._cast if set(one.models) == set(group)]

    def is_split(self, group: Sequence[str], question: str) -> bool:
        """Whether the judges' votes on the question have no majority, for any criterion."""
        by_judge: dict[str, list[Comparison]] = {}
        for one in self.comparisons(group):
            if one.environment == question:
                by_judge.setdefault(one.judge, []).append(one)
        votes = ([found for one in by_judge.values() if (found := vote(one, name)) is not None] for name in CRITERIA)
        return any(map(is_split, votes))


def _plain(comparison: Comparison) -> dict[str, Any]:
    """A comparison as its line in the file is read again."""
    return asdict(comparison) | {"models": list(comparison.models)}


def _wrong_ballot(record: Mapping[str, Any]) -> str | None:
    """What keeps a line from being a whole ballot, or none."""
    ballot, labels = record.get("ballot", ""), ascii_uppercase[: len(record["models"])]
    best, overall = (ballot.get(name) if isinstance(ballot, dict) else None for name in ("best", "overall"))
    whole = (
        isinstance(best, dict)
        and best.keys() == CRITERIA.keys()
        and all(isinstance(tops, list) and tops and all(top in tuple(labels) for top in tops) for tops in best.values())
        and isinstance(overall, dict)
        and overall.keys() == set(labels)
        and all(type(score) is int and score in SCORES for score in overall.values())
    )
    return None if whole or ballot is None else f"ballot: the best on each criterion and a score for each plan are needed, not {ballot!r}"


def _comparison(record: Mapping[str, Any]) -> Comparison:
    ballot = record["ballot"]
    read = None if ballot is None else Ballot({name: tuple(best) for name, best in ballot["best"].items()}, ballot["overall"])
    return Comparison(record["judge"], record["environment"], record["order"], tuple(record["models"]), read)


def markdown(figures: Mapping[str, Any]) -> str:
    """Win rates of one comparison, and how far each judge went by the place of a plan."""
    models = figures["models"]
    rows = [
        (name, *(shown(values["wins"][model], "{:.1%}") for model in models), "–" if values["ties"] is None else f"{values['ties']:.0%}")
        for name, values in figures["criteria"].items()
    ]
    rows.append(("mean score", *(shown(figures["criteria"][OVERALL]["scores"][model], "{:.2f}") for model in models), ""))
    judges = [
        (
            judge,
            *(shown(values["places"][label], "{:.1%}") for label in values["places"]),
            f"{values['expected']:.1%}",
            "–" if values["kept"] is None else f"{values['kept']:.0%}",
            values["unread"],
        )
        for judge, values in figures["judges"].items()
    ]
    labels = [f"best at {label}" for label in ascii_uppercase[: len(models)]]
    return "\n".join(
        [
            markdown_table((f"won of {figures['questions']} questions", *models, "ties"), rows),
            markdown_table(("judge", *labels, "without bias", "kept in all orders", "unread"), judges),
        ]
    )
