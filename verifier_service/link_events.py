"""What the decode loop hears of the link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saguaro.types import SpeculatorFrame, SpeculatorInfo, VerifierFrame

SendFrame = Callable[[VerifierFrame], None]


@dataclass(frozen=True, slots=True)
class LinkEvents:
    """Where the link reports to; called on the event loop."""

    on_attached: Callable[[SendFrame, SpeculatorInfo], None]
    on_frame: Callable[[SpeculatorFrame], None]
    on_detached: Callable[[str], None]
