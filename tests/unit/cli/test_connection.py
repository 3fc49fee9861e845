"""Keys and authorities on the command line."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from saguaro.cli.connection import Connection
from saguaro.client import NO_RETRY
from saguaro.errors import ConfigurationError
from tests.unit.gateway.house import serving
from tests.unit.gateway.test_client_retry import Gateway, serve


def test_the_key_of_the_environment_goes_with_the_call_and_is_not_shown() -> None:
    gateway = Gateway()

    async def scenario() -> str:
        async with serving(serve(gateway)) as server:
            command = [sys.executable, "-m", "saguaro.cli", "generate", "--address", server.address, "--raw", "Hi"]
            environment = os.environ | {"SAGUARO_API_KEY": "k-secret"}
            done = await asyncio.to_thread(
                subprocess.run, command, env=environment, capture_output=True, text=True, check=True, timeout=90
            )
            return str(done.stdout + done.stderr)

    shown = asyncio.run(scenario())
    assert shown.startswith("ok\n")
    assert "k-secret" not in shown + repr(Connection("a:1", "k-secret"))
    assert gateway.calls[0]["authorization"] == "Bearer k-secret"


def test_authorities_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*none\.pem"):
        Connection("127.0.0.1:1", tls_ca=tmp_path / "none.pem").client(NO_RETRY)
