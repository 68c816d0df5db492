"""Which environments are trained on and which are held out, by paper; what is too like something held out is kept out of training."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy

from papergym.data_pipeline.dates import side_of
from papergym.data_pipeline.duplicates import groups, links
from papergym.data_pipeline.subsets import by_domain, nested_subsets, shuffled
from papergym.environment import Environment, write_environments
from papergym.errors import InputError
from papergym.files import check_replaceable, write_jsonl

SIDES = TRAIN, HELDOUT = "train", "heldout"


@dataclass(frozen=True)
class SplitRule:
    """What is held out: `share` of the papers, drawn by seed, at least one of them and not all.

    after: instead, papers dated from that day on, whatever an environment's `split` says. per_domain: that many papers of each domain in
    place of the share, or out of the later ones, of which the others then are on neither side. similarity: near-duplicates, alike at least
    so far (papergym.data_pipeline.duplicates), count as one paper; those of the same paper, source or question always do.
    """

    share: float = 1 / 3
    seed: int = 0
    after: date | None = None
    per_domain: int | None = None
    similarity: float | None = None


class Split(NamedTuple):
    """The two sides, whose environments tell theirs in `split`, and what is on neither, each with the reason."""

    train: list[Environment]
    heldout: list[Environment]
    left_out: list[tuple[Environment, str]]


def split_environments(environments: Sequence[Environment], rule: SplitRule) -> Split:
    """Splits by the rule; without a date, environments whose `split` is "train" or "heldout" already keep their side.

    The environments of a paper stay together. Where marks or dates put them on both sides, those to train on are on neither.
    Raises InputError when a side would be empty, a domain has too few papers, or `split` is something else.
    """
    if not 0 <= rule.share <= 1:  # NaN too
        raise InputError(f"the share of the papers to hold out is {rule.share}; a number from 0 to 1 is needed")
    group = groups(len(environments), links(environments, rule.similarity))
    sides = [_side(environment, rule.after) for environment in environments]
    held = {label: e.id for e, label, side in reversed(list(zip(environments, group, sides))) if side == HELDOUT}
    undecided = set(group) - {label for label, side in zip(group, sides) if side is not None}
    if rule.per_domain is not None:
        tested = _draw_per_domain(environments, set(held) if rule.after else undecided, rule)
    else:
        tested = set(held) if rule.after else _draw_share(environments, undecided, rule)
    tested = tested if rule.after else tested | set(held)
    split = Split([], [], [])
    for environment, label, side in zip(environments, group, sides):
        if label in tested:
            if side == HELDOUT or (side is None and not rule.after):
                split.heldout.append(replace(environment, split=HELDOUT))
            else:
                split.left_out.append(
                    (environment, f"is linked by paper, source, question or likeness with {held[label]!r}, which is held out")
                )
        elif side == HELDOUT:
            split.left_out.append((environment, f"is not among the {rule.per_domain} papers of its domain that were drawn"))
        elif side is None and rule.after:
            split.left_out.append((environment, f"has the date {environment.provenance.get('date')}, which tells no side of {rule.after}"))
        else:
            split.train.append(replace(environment, split=TRAIN))
    if not split.train or not split.heldout:
        raise InputError(
            f"{len(environments)} environments give {len(split.train)} to train on and {len(split.heldout)} held out: at least one of each "
            f"is needed, so {'give environments a date or move --after' if rule.after else 'add papers'}"
        )
    return split


def write_split(
    environments: Sequence[Environment],
    train: Path,
    heldout: Path,
    rule: SplitRule,
    subset_sizes: Sequence[int] = (),
    source: Path | None = None,
) -> tuple[Split, list[Path]]:
    """Splits and writes both files, and for each size N TRAIN-N.jsonl, nested and balanced over the domains (nested_subsets).

    {"environment", "reason"} of what is on neither side goes to TRAIN.left_out.jsonl. Returns the split and the subsets' files. At no
    moment does the new file of one side stand beside the old file of the other. source: the file that the environments are from.
    Raises InputError for what split_environments and nested_subsets refuse, when two of the files are the same or one of them can't be
    replaced, and for a subset of an earlier split that would stay.
    """
    left_out = train.with_name(f"{train.stem}.left_out.jsonl")
    roles = [("the environments to train on", train), ("those held out", heldout), ("those on neither side", left_out)]
    roles += [(f"the subset of {size}", _subset_path(train, size)) for size in dict.fromkeys(subset_sizes)]
    taken = {} if source is None else {source.resolve(): "the environments to split"}
    for role, path in roles:
        check_replaceable(path)
        if (other := taken.setdefault(path.resolve(), role)) != role:
            raise InputError(f"{path}: {other} and {role} need two files; give --train and --heldout other names")
    split = split_environments(environments, rule)
    subsets = {_subset_path(train, size): subset for size, subset in nested_subsets(split.train, subset_sizes, rule.seed).items()}
    old = [path for path in train.parent.glob("*") if re.fullmatch(rf"{re.escape(train.stem)}-\d+{re.escape(train.suffix)}", path.name)]
    if stale := sorted(set(old) - set(subsets)):
        raise InputError(f"{stale[0]}: a subset of an earlier split, which may hold what this one tests on; remove it")
    for path in (heldout, left_out, *subsets):
        path.unlink(missing_ok=True)
    write_environments(train, split.train)
    for path, subset in subsets.items():
        write_environments(path, subset)
    if split.left_out:
        write_jsonl(left_out, [{"environment": environment.id, "reason": reason} for environment, reason in split.left_out])
    write_environments(heldout, split.heldout)
    return split, list(subsets)


def _subset_path(train: Path, size: int) -> Path:
    return train.with_name(f"{train.stem}-{size}{train.suffix}")


def _side(environment: Environment, after: date | None) -> str | None:
    """The side that an environment is on before anything is drawn; None if that is open, or, with a day, unknown."""
    if after is not None:
        later = side_of(environment, after)
        return None if later is None else HELDOUT if later else TRAIN
    if environment.split is not None and environment.split not in SIDES:
        raise InputError(f"environment {environment.id!r}, split: {environment.split!r} is not one of {', '.join(SIDES)} or null")
    return environment.split


def _draw_share(environments: Sequence[Environment], undecided: set[int], rule: SplitRule) -> set[int]:
    labels = sorted(undecided, key=lambda label: _paper(environments[label]))
    order = numpy.random.default_rng(rule.seed).permutation(len(labels))
    count = min(max(1, round(rule.share * len(labels))), len(labels) - 1) if len(labels) > 1 else 0
    return {labels[index] for index in order[:count]}


def _draw_per_domain(environments: Sequence[Environment], candidates: set[int], rule: SplitRule) -> set[int]:
    assert rule.per_domain is not None
    drawn: set[int] = set()
    possible = by_domain(environments[label] for label in sorted(candidates))
    for domain in by_domain(environments):
        members = possible.get(domain, [])
        if len(members) < rule.per_domain:
            raise InputError(
                f"domain {domain!r}: {len(members)} papers could be held out, and {rule.per_domain} are asked for; ask for fewer, name "
                "the domains to use, or with environments that are marked as train or held out already give --after"
            )
        chosen = {environment.id for environment in shuffled(members, rule.seed)[: rule.per_domain]}
        drawn |= {label for label in candidates if environments[label].id in chosen}
    return drawn


def _paper(environment: Environment) -> str:
    return str(environment.provenance.get("paper", environment.id))
