"""Which cores and how many threads each service of a trio gets: pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saguaro.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Placement:
    """`cores` as `--cores` takes them, None for unpinned; `threads` of one forward."""

    cores: str | None
    threads: int

    def flags(self) -> list[str]:
        """Flags of a service with a model."""
        pinned = [] if self.cores is None else ["--cores", self.cores]
        return [*pinned, "--threads", str(self.threads)]


@dataclass(frozen=True, slots=True)
class TrioPlacement:
    """The two services that compute; the gateway goes where there is room."""

    verifier: Placement
    speculator: Placement


def place(threads: str, cores: Sequence[int]) -> TrioPlacement:
    """`threads` is "auto" or "<verifier's>,<speculator's>"; `cores` are those that the trio may use.

    Both work at the same time, so they share no core where there are two or more: the speculator gets a quarter, at
    least one; the draft is small. Raises ConfigurationError for other text.
    """
    available = sorted(cores)
    if threads == "auto":
        if len(available) < 2:
            return TrioPlacement(Placement(None, 1), Placement(None, 1))
        num_speculator = max(1, len(available) // 4)
        return _split(available, len(available) - num_speculator, num_speculator)
    first, comma, second = threads.partition(",")
    if not (comma and first.isdecimal() and second.isdecimal() and int(first) and int(second)):
        raise ConfigurationError(
            f"--threads is \"{threads}\"; give auto, or the verifier's and the speculator's as in 3,1"
        )
    if int(first) + int(second) > len(available):
        return TrioPlacement(Placement(None, int(first)), Placement(None, int(second)))
    return _split(available, int(first), int(second))


def _split(available: Sequence[int], num_verifier: int, num_speculator: int) -> TrioPlacement:
    verifier, speculator = available[:num_verifier], available[num_verifier : num_verifier + num_speculator]
    return TrioPlacement(Placement(_text(verifier), num_verifier), Placement(_text(speculator), num_speculator))


def _text(cores: Sequence[int]) -> str:
    return ",".join(map(str, cores))
