"""Which environments are trained on and which are held out, by paper."""

from collections.abc import Sequence
from pathlib import Path

import numpy

from papergym.environment import Environment, write_environments
from papergym.errors import InputError


def split_environments(environments: Sequence[Environment], heldout_share: float, seed: int) -> tuple[list[Environment], list[Environment]]:
    """Returns (train, heldout). Environments whose `split` is set keep it; the others are drawn by seed, at least one for each side.

    Environments of one paper (provenance.paper) stay together. Raises InputError when one side would be empty.
    """
    papers = sorted({_paper(e) for e in environments if e.split is None})
    order = numpy.random.default_rng(seed).permutation(len(papers))
    count = min(max(1, round(heldout_share * len(papers))), len(papers) - 1) if len(papers) > 1 else 0
    drawn = {papers[index] for index in order[:count]}
    heldout = [e for e in environments if e.split == "heldout" or (e.split is None and _paper(e) in drawn)]
    train = [e for e in environments if e not in heldout]
    if not train or not heldout:
        raise InputError(
            f"{len(environments)} environments give {len(train)} to train on and {len(heldout)} held out: at least one of each is needed, "
            "so add papers"
        )
    return train, heldout


def write_split(
    environments: Sequence[Environment], train: Path, heldout: Path, heldout_share: float, seed: int
) -> tuple[list[Environment], list[Environment]]:
    """Splits and writes both files. At no moment does the new file of one side stand beside the old file of the other.

    Raises InputError for what split_environments refuses, and when both paths are the same.
    """
    if train.resolve() == heldout.resolve():
        raise InputError(f"{train}: the environments to train on and those held out need two files")
    sides = split_environments(environments, heldout_share, seed)
    heldout.unlink(missing_ok=True)
    write_environments(train, sides[0])
    write_environments(heldout, sides[1])
    return sides


def _paper(environment: Environment) -> str:
    return str(environment.provenance.get("paper", environment.id))
