"""When a device has done what it was told to: accelerators work on after a call has returned."""

from __future__ import annotations

import torch


def wait_for(device: torch.device) -> None:
    """Returns when all work given to the device is done, and raises its faults. On a CPU calls end with their work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
