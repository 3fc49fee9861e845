"""CPU cores as settings name them."""

from __future__ import annotations


def parse_cores(text: str) -> tuple[int, ...]:
    """ "0-3,6" as (0, 1, 2, 3, 6); ValueError for anything else."""
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.strip().isdecimal() or (dash and not last.strip().isdecimal()):
            raise ValueError(f'cores are "{text}"; write them as "0" or "0-3,6"')
        low, high = int(first), int(last) if dash else int(first)
        if high < low:
            raise ValueError(f'cores are "{text}", but {part} counts down')
        cores.update(range(low, high + 1))
    return tuple(sorted(cores))
