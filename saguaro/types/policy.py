"""How far requests are speculated, by what they are for."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

from saguaro.types.sampling import AcceptanceMode


class TrafficClass(enum.IntEnum):
    """What a request is for: somebody waits for each token, nobody does, or a bit of both."""

    LATENCY = 1
    BALANCED = 2
    THROUGHPUT = 3


@dataclass(frozen=True, slots=True)
class ClassPolicy:
    """Bounds on the planner for one traffic class; None, for `auto`, leaves it to measurements and the class's nature.

    `max_lookahead`: most draft tokens in a speculation (K), 0 decodes plainly. `break_even_batch` (b*): below this many
    running sequences a miss waits for a speculation; infinite always, 0 never. `acceptance`: the mode of requests that
    name none; None leaves it to the verifier.
    """

    max_lookahead: int | None = None
    break_even_batch: float | None = None
    acceptance: AcceptanceMode | None = None


@dataclass(frozen=True, slots=True)
class TrafficPolicy:
    """The policy of a deployment, class by class."""

    latency: ClassPolicy = field(default_factory=ClassPolicy)
    balanced: ClassPolicy = field(default_factory=ClassPolicy)
    throughput: ClassPolicy = field(default_factory=ClassPolicy)

    def of(self, traffic_class: TrafficClass) -> ClassPolicy:
        """The bounds of one class."""
        match traffic_class:
            case TrafficClass.LATENCY:
                return self.latency
            case TrafficClass.BALANCED:
                return self.balanced
            case TrafficClass.THROUGHPUT:
                return self.throughput

    def changed(self, changes: dict[TrafficClass, ClassPolicy]) -> TrafficPolicy:
        """The policy with these classes replaced."""
        return replace(self, **{traffic_class.name.lower(): policy for traffic_class, policy in changes.items()})


@dataclass(frozen=True, slots=True)
class KeptPolicy:
    """Whether the verifier at `address` has confirmed the policy that its gateway wants, since it last joined."""

    address: str
    in_force: bool
    reason: str = ""  # why not


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """What a gateway wants of its verifiers, and who keeps to it."""

    policy: TrafficPolicy
    verifiers: tuple[KeptPolicy, ...]
