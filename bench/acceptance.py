"""SSD by acceptance mode and C of Saguaro sampling: what a user asks for, as modes of the bench."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from saguaro.client.requests import GenerateOptions
from saguaro.errors import ConfigurationError

COUPLED, REJECTION = "coupled", "rejection"
_EXAMPLE = "coupled, rejection, rejection:0.5 or rejection:auto, with commas between them"


@dataclass(frozen=True, slots=True)
class AcceptanceSetting:
    """An acceptance mode, and C in rejection mode; "auto" leaves C to the verifier, which then tunes it."""

    acceptance: str
    cached_scale: float | Literal["auto"] = 1.0

    @property
    def mode(self) -> str:
        """Its name among the modes; SSD is in coupled mode."""
        return "ssd" if self.acceptance == COUPLED else f"ssd_{self.label}"

    @property
    def label(self) -> str:
        """As a user writes it."""
        return self.acceptance if self.cached_scale == 1.0 else f"{self.acceptance}:{self.cached_scale}"

    @property
    def options(self) -> GenerateOptions:
        """What each request says of it."""
        if self.cached_scale == "auto":
            return {"acceptance": self.acceptance}
        return {"acceptance": self.acceptance, "cached_scale": self.cached_scale}


def parse_acceptances(text: str) -> tuple[AcceptanceSetting, ...]:
    """ "coupled,rejection:0.5" as settings, "" as none. Raises ConfigurationError for another form."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    return tuple(dict.fromkeys(_setting(word) for word in words))


def _setting(word: str) -> AcceptanceSetting:
    acceptance, colon, scale = word.partition(":")
    if acceptance not in (COUPLED, REJECTION) or (colon and acceptance == COUPLED):
        raise ConfigurationError(f'--acceptance has "{word}"; it takes {_EXAMPLE}')
    if not colon or scale == "auto":
        return AcceptanceSetting(acceptance, "auto" if colon else 1.0)
    try:
        cached_scale = float(scale)
    except ValueError:
        raise ConfigurationError(f'--acceptance has "{word}"; it takes {_EXAMPLE}') from None
    if not 0 <= cached_scale <= 1:
        raise ConfigurationError(f"--acceptance has C = {scale}; it must be from 0 to 1")
    return AcceptanceSetting(acceptance, cached_scale)
