"""Which cores serve which role on a machine, and how processes are dealt to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROLES = ("server", "load", "origin")


@dataclass(frozen=True)
class Fit:
    """The cores of each process, or why they cannot be had."""

    cores: list[list[int]]
    problem: str = ""
    shared: bool = False


def roles_of(cores: Sequence[int], has_origin: bool) -> dict[str, list[int]]:
    """Splits one machine between the roles; with four cores or more the first is left for the lab.

    Below four cores an origin shares the generator's cores: it mostly waits.
    """
    usable = list(cores[1:]) if len(cores) >= 4 else list(cores)
    if len(usable) == 1:
        return {role: usable for role in ROLES}
    origin: list[int] = []
    if has_origin and len(usable) >= 4:
        quarter = max(1, len(usable) // 4)
        origin, usable = usable[-quarter:], usable[:-quarter]
    half = max(1, len(usable) // 2)
    server, load = usable[:half], usable[half:]
    return {"server": server, "load": load, "origin": origin or load}


def deal(cores: Sequence[int], count: int, per: int, share: bool) -> Fit:
    """`count` processes of `per` cores each; with `share` they go round the cores again."""
    if count * per <= len(cores):
        return Fit([list(cores[i * per : (i + 1) * per]) for i in range(count)])
    if not share:
        have = f"{len(cores)} core{'s' if len(cores) != 1 else ''}"
        each = f" of {per} cores each" if per > 1 else ""
        return Fit([], f"{count} processes{each} on {have}")
    width = min(per, len(cores))
    return Fit(
        [[cores[(i * width + k) % len(cores)] for k in range(width)] for i in range(count)],
        shared=True,
    )
