"""What the verifier says where its speculator's port and its own TLS do not fit together."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from saguaro.channel import Tls
from saguaro.config import SpeculatorSettings
from saguaro.server import GrpcServer
from saguaro.types import ModelIdentity
from verifier_service.speculator_link import LinkEvents, SpeculatorLink
from verifier_service.traffic import Traffic


@pytest.mark.parametrize(
    ("trusts", "reason"),
    [
        (
            "strangers",
            r"the speculator at 127\.0\.0\.1:\d+ \(dialled over TLS\) is away; it cannot be reached: .*not trusted",
        ),
        (None, r"the speculator at 127\.0\.0\.1:\d+ is away; it cannot be reached: .*asks for TLS"),
    ],
)
def test_a_speculator_that_cannot_be_reached_over_tls_is_named_with_what_may_be_wrong(
    trusts: str | None, reason: str, request: pytest.FixtureRequest, certs: Path
) -> None:
    tls = None if trusts is None else Tls(request.getfixturevalue(trusts) / "ca.pem")
    settings = SpeculatorSettings(port=0, tls_cert=certs / "speculator.pem", tls_key=certs / "speculator.key")

    async def scenario() -> str:
        told: asyncio.Queue[str] = asyncio.Queue()
        server = GrpcServer(settings, lambda server: [], role="speculator")
        await server.start()
        link = SpeculatorLink(
            server.address,
            ModelIdentity("target", "f" * 64, 256, 64, "float32"),
            LinkEvents(lambda send, info: None, lambda frame: None, told.put_nowait),
            Traffic(lambda: 0),
            reconnect_seconds=10,
            tls=tls,
        )
        running = asyncio.create_task(link.run())
        try:
            return await asyncio.wait_for(told.get(), 10)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await server.stop()

    assert re.match(reason, asyncio.run(scenario()))
