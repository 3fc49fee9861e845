"""Waiting until a trio speculates."""

from __future__ import annotations

import time

from saguaro.cli.trio import Trio
from saguaro.client import Client


def await_speculation(trio: Trio, seconds: float = 60.0) -> None:
    with Client(trio.gateway_address) as client:
        deadline = time.monotonic() + seconds
        while not client.list_models()[0].speculating:
            assert time.monotonic() < deadline, client.list_models()[0].not_speculating_reason
            time.sleep(0.05)
