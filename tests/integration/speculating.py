"""Waiting until a trio speculates."""

from __future__ import annotations

import time

from saguaro.cli.trio import Trio
from saguaro.client import Client


def await_speculation(trio: Trio, seconds: float = 60.0, *, reason: str | None = None) -> None:
    """Until the verifier is speculated, or says why not with that word in it."""
    with Client(trio.gateway_address) as client:
        deadline = time.monotonic() + seconds
        while not (model := client.list_models()[0]).speculating:
            if reason is not None and reason in model.not_speculating_reason:
                return
            assert time.monotonic() < deadline, model.not_speculating_reason
            time.sleep(0.05)
