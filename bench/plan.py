"""What a bench run measures: modes, cells, prompts, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bench.acceptance import AcceptanceSetting
from bench.prompts import KINDS
from bench.sweep import FixedSetting
from saguaro.config import VerifierSettings
from saguaro.errors import ConfigurationError

PLAIN = "plain"
PLAIN_ALL_CORES = "plain_all_cores"
SD = "sd"
SSD = "ssd"
TRANSFORMERS = "transformers"
TRANSFORMERS_ASSISTED = "transformers_assisted"

ALL_MODES = (PLAIN, PLAIN_ALL_CORES, SD, SSD, TRANSFORMERS, TRANSFORMERS_ASSISTED)
EMULATED_MODES = (PLAIN, SD, SSD)
QUICK_MODES = (PLAIN, SD, SSD, TRANSFORMERS_ASSISTED)
_PEERS = (TRANSFORMERS, TRANSFORMERS_ASSISTED)

Item = TypeVar("Item")


def ssd_at(rtt_ms: float) -> str:
    """Name of SSD with a round trip between verifier and speculator made that much longer."""
    return SSD if rtt_ms == 0 else f"{SSD}_rtt_{rtt_ms:g}ms"


@dataclass(frozen=True, slots=True)
class Cell:
    """Conditions that all modes share."""

    temperature: float
    concurrency: int


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """Everything a run is asked for.

    `lookahead` and `budget` are the most that SSD may use, or the largest of `sweep`, which adds a mode for each fixed
    setting: these shall not be out of the automatic policy's reach. Synchronous SD always drafts `sd_lookahead`.
    `max_seconds`: no batch but the first is begun that would probably end later.
    """

    target: str = "demo-target"
    draft: str = "demo-draft"
    emulate: str | None = None
    modes: tuple[str, ...] = ALL_MODES
    temperatures: tuple[float, ...] = (0.0, 0.7, 1.0)
    concurrencies: tuple[int, ...] = (1, 2, 4, 8)
    rtts_ms: tuple[float, ...] = (0.0,)
    kinds: tuple[str, ...] = KINDS
    prompts_per_kind: int = 3
    max_tokens: int = 96
    ignore_eos: bool = False
    assistant_tokens: int | None = None  # drafted a round by assisted generation; None: transformers' own default
    transformers_threads: int | None = None  # of `generate`; None: one a core
    sd_lookahead: int = 4
    sweep: tuple[FixedSetting, ...] = ()
    acceptances: tuple[AcceptanceSetting, ...] = ()  # SSD in each
    lookahead: int = field(default_factory=lambda: int(VerifierSettings.model_fields["lookahead"].default))
    budget: int = field(default_factory=lambda: int(VerifierSettings.model_fields["budget"].default))
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, given, known in (("modes", self.modes, ALL_MODES), ("kinds", self.kinds, KINDS)):
            unknown = [item for item in given if item not in known]
            if unknown or not given:
                raise ConfigurationError(f"--{name} has {unknown or 'nothing'}; it can have {', '.join(known)}")
        if all(mode in _PEERS for mode in self.modes):
            raise ConfigurationError("--modes has none of ours; transformers gets its prompts from our tokenizer")
        if self.emulate is not None and not set(self.modes) <= set(EMULATED_MODES):
            raise ConfigurationError(
                f"--modes has {', '.join(self.modes)}; an emulated pair, without weights for transformers and without "
                f"cores of its own, can have {', '.join(EMULATED_MODES)}"
            )
        if not self.temperatures or not self.concurrencies or min(self.concurrencies) < 1:
            raise ConfigurationError("a bench needs a temperature and a concurrency of at least 1")
        if any(rtt < 0 for rtt in self.rtts_ms):
            raise ConfigurationError(f"--rtt-ms has {min(self.rtts_ms):g}; a round trip cannot take less than nothing")

    @property
    def mode_names(self) -> tuple[str, ...]:
        """Modes, SSD once more for every round-trip time but 0, the fixed settings, and SSD by acceptance."""
        far = tuple(ssd_at(rtt) for rtt in self.rtts_ms if rtt > 0) if SSD in self.modes else ()
        fixed = tuple(setting.policy for setting in self.sweep)
        by_acceptance = tuple(setting.mode for setting in self.acceptances)
        return tuple(dict.fromkeys(self.modes + far + fixed + by_acceptance))

    @property
    def most_lookahead(self) -> int:
        """K that the verifier must allow."""
        return max((self.lookahead, self.sd_lookahead, *(setting.lookahead for setting in self.sweep)))

    @property
    def most_budget(self) -> int:
        """B that the verifier must allow."""
        return max((self.budget, *(setting.budget for setting in self.sweep)))

    @property
    def peer_modes(self) -> tuple[str, ...]:
        """Modes that transformers runs."""
        return tuple(mode for mode in self.modes if mode in _PEERS)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The first is the one whose ratios are printed first."""
        return tuple(
            Cell(temperature, concurrency) for temperature in self.temperatures for concurrency in self.concurrencies
        )

    @staticmethod
    def modes_of(emulate: str | None) -> tuple[str, ...]:
        """All that there can be."""
        return ALL_MODES if emulate is None else EMULATED_MODES

    @classmethod
    def quick(cls, target: str, draft: str, emulate: str | None, max_seconds: float) -> BenchPlan:
        """Greedy, one answer at a time, the modes that the ratios need, one prompt of each kind if time allows."""
        allowed = cls.modes_of(emulate)
        return cls(
            target=target,
            draft=draft,
            emulate=emulate,
            modes=tuple(mode for mode in QUICK_MODES if mode in allowed),
            temperatures=(0.0,),
            concurrencies=(1,),
            prompts_per_kind=1,
            max_tokens=32,
            max_seconds=max_seconds,
        )


def rotated(modes: Sequence[str], batch: int) -> tuple[str, ...]:
    """The order of the modes on one batch: each is first, second, .. equally often, so that drift hurts all alike."""
    shift = batch % len(modes)
    return (*modes[shift:], *modes[:shift])


def batches(items: Sequence[Item], size: int) -> list[tuple[Item, ...]]:
    """Full batches over all items; the last is filled up from the beginning."""
    count = -(-len(items) // size)
    return [tuple(items[(start * size + i) % len(items)] for i in range(size)) for start in range(count)]
