"""What an emulated pair of models is: its vocabulary, how well the draft guesses, and how long a forward takes."""

from __future__ import annotations

import enum
import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from saguaro.emulation.tokenizer import FIRST_WORD_ID
from saguaro.errors import ConfigurationError

_SHIPPED = Path(__file__).parent.parent / "data" / "profiles"
_LEAST_WORDS = 128


class Role(enum.Enum):
    """Which model of the pair a runner emulates."""

    TARGET = "target"
    DRAFT = "draft"


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ForwardTime(_Table):
    """Time of a forward by rows, the tokens in its batch: flat while the weights' way through memory sets it."""

    base_ms: Annotated[float, Field(ge=0, le=60_000, description="a forward of up to flat_rows rows; 0 never sleeps")]
    flat_rows: Annotated[int, Field(ge=0, le=1 << 20, description="rows that base_ms carries")] = 0
    ms_per_row: Annotated[float, Field(ge=0, le=1000, description="each row beyond flat_rows")] = 0.0

    def milliseconds(self, num_rows: int) -> float:
        """base_ms + ms_per_row * max(num_rows - flat_rows, 0)."""
        return self.base_ms + self.ms_per_row * max(num_rows - self.flat_rows, 0)


class Faults(_Table):
    """What goes wrong with one of the two models. Forwards are counted from 1, the warm one left out."""

    jitter_sigma: Annotated[
        float, Field(ge=0, le=2, description="sigma of the lognormal factor of each forward's time, whose mean is 1")
    ] = 0.0
    jitter_seed: Annotated[int, Field(ge=0, le=2**32 - 1, description="seed of the jitter")] = 0
    stall_every: Annotated[
        int | None, Field(ge=1, le=1 << 30, description="every n-th forward stalls; default: none does")
    ] = None
    stall_ms: Annotated[float, Field(ge=0, le=600_000, description="how much longer a stalled forward takes")] = 0.0
    crash_at: Annotated[
        int | None, Field(ge=1, le=1 << 30, description="the process dies in its n-th forward; default: never")
    ] = None


class FaultsByRole(_Table):
    """Faults of target and draft."""

    target: Faults = Faults()
    draft: Faults = Faults()


class Profile(_Table):
    """One emulated pair. Target and draft must be given the same: it is what makes their guesses agree."""

    name: Annotated[str, Field(min_length=1, max_length=128, description="the file's, without .toml")]
    vocabulary: Annotated[
        int,
        Field(
            ge=FIRST_WORD_ID + _LEAST_WORDS,
            le=1 << 18,
            description="columns of the logits; what a device picks its tokens from in no time, a CPU must scan",
        ),
    ]
    acceptance_rate: Annotated[
        float, Field(ge=0, le=1, description="a: how often the draft ranks the target's token first")
    ]
    rank_exponent: Annotated[
        float,
        Field(
            gt=0,
            le=10,
            description="r: where it does not, F further candidates miss the token with probability (1 + F)**-r",
        ),
    ]
    context_limit: Annotated[int, Field(ge=16, le=1 << 24, description="longest sequence")]
    eos_probability: Annotated[
        float, Field(ge=0, le=1, description="chance of each token to end the answer: 1 / mean length; 0 never ends it")
    ] = 0.0
    target: ForwardTime
    draft: ForwardTime
    faults: FaultsByRole = FaultsByRole()

    def forward_time(self, role: Role) -> ForwardTime:
        """The time law of one of the two."""
        return self.target if role is Role.TARGET else self.draft

    def faults_of(self, role: Role) -> Faults:
        """The faults of one of the two."""
        return self.faults.target if role is Role.TARGET else self.faults.draft


def shipped_profiles() -> tuple[str, ...]:
    """Names of the profiles that come with Saguaro."""
    return tuple(sorted(file.stem for file in _SHIPPED.glob("*.toml")))


def load_profile(spec: str) -> Profile:
    """The profile that `spec` names: a TOML file, or a shipped one.

    Raises ConfigurationError that says what is there instead, or which value does not fit.
    """
    file = _SHIPPED / f"{spec}.toml" if spec in shipped_profiles() else Path(spec).expanduser()
    try:
        values = tomllib.loads(file.read_text())
    except OSError as error:
        shipped = ", ".join(shipped_profiles())
        raise ConfigurationError(
            f"no emulation profile {spec} ({error.strerror}); give a TOML file, or one of {shipped}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the emulation profile {spec} is not TOML: {error}") from None
    try:
        return Profile(**({"name": file.stem} | values))
    except ValidationError as error:
        sentences = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise ConfigurationError(f"the emulation profile {spec} does not fit: {'; '.join(sentences)}") from None
