"""Training sets of several sizes for scaling runs: balanced over the domains, and each contained in every larger one."""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from papergym.environment import Environment
from papergym.errors import InputError


def nested_subsets(environments: Sequence[Environment], sizes: Sequence[int], seed: int) -> dict[int, list[Environment]]:
    """size -> the first `size` environments of one order, in which the domains take turns, so that their numbers differ by one at most.

    The order within a domain depends on the seed and on the environments' ids alone. Raises InputError for a size below 1 and when a domain
    has too few environments.
    """
    domains = by_domain(environments)
    for size in sizes:
        if size < 1:
            raise InputError(f"subset of {size}: a size from 1 is needed")
        for place, (domain, members) in enumerate(domains.items()):
            share = size // len(domains) + (place < size % len(domains))
            if len(members) < share:
                raise InputError(
                    f"subset of {size}: its {len(domains)} domains need {share} environments of {domain!r}, and there are {len(members)}; "
                    "ask for fewer, or name the domains to use"
                )
    orders = [shuffled(members, seed) for members in domains.values()]
    return {size: [orders[place % len(orders)][place // len(orders)] for place in range(size)] for size in sorted(set(sizes))}


def shuffled(environments: Iterable[Environment], seed: int) -> list[Environment]:
    """A random order that another environment more or less does not change: by a digest of seed and id."""
    return sorted(environments, key=lambda environment: sha256(f"{seed}:{environment.id}".encode()).digest())


def by_domain(environments: Iterable[Environment]) -> dict[str, list[Environment]]:
    """Domain -> its environments, in the order of the domains' names."""
    found: dict[str, list[Environment]] = {}
    for environment in environments:
        found.setdefault(environment.domain, []).append(environment)
    return dict(sorted(found.items()))


def of_domains(environments: Sequence[Environment], domains: Sequence[str]) -> list[Environment]:
    """Those of the named domains, all without a name. Raises InputError for a domain that none has."""
    present = by_domain(environments)
    if unknown := [domain for domain in domains if domain not in present]:
        raise InputError(f"domain {unknown[0]!r}: no environment has it; the domains are {', '.join(present)}")
    return [environment for environment in environments if not domains or environment.domain in domains]
