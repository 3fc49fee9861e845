"""A real trio on emulated devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from saguaro.cli.trio import Trio

# A long prompt takes its time, as on a slow device: 1 ms a token.
PROFILE = """
vocabulary = 600
context_limit = 4096
acceptance_rate = 0.8
rank_exponent = 1.4
[target]
base_ms = {target_ms}
flat_rows = 64
ms_per_row = 1.0
[draft]
base_ms = 0.5
{faults}
"""


def emulated(folder: Path, *, faults: str = "", target_ms: float = 15.0, gateway_flags: Sequence[str] = ()) -> Trio:
    # The law knows no name, so every profile of this file says the same after the same prompt.
    file = folder / "mine.toml"
    file.write_text(PROFILE.format(faults=faults, target_ms=target_ms))
    return Trio(emulate=str(file), log_folder=folder, gateway_flags=gateway_flags)
