"""Whatever goes wrong on one connection to the speculator, the link comes back, and says what it was."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from saguaro.channel import Tls
from saguaro.config import SpeculatorSettings
from saguaro.server import GrpcServer
from saguaro.types import NotSpeculatingReason, SequenceStatus, VerifierFrame
from saguaro.v1 import speculator_pb2 as pb
from saguaro.v1.speculator_pb2_grpc import add_SpeculatorServiceServicer_to_server
from speculator_service.service import SpeculatorService
from speculator_service.worker import SpeculatorWorker
from tests.unit.services.scripted_speculator import HANDSHAKE, Peer, linked, port_of

GOOD = pb.SpeculateResponse(free_kv_blocks=7)
NO_MESSAGE = b"\xff\xff\xff"


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "pair.toml"
    path.write_text(
        "vocabulary = 600\ncontext_limit = 512\nacceptance_rate = 0.8\nrank_exponent = 1.4\n"
        "[target]\nbase_ms = 1\n[draft]\nbase_ms = 0.1\n"
    )
    return path


@pytest.mark.parametrize("lost", ["ca.pem", "verifier.pem", "verifier.key"])
def test_a_certificate_that_is_missing_while_the_speculator_is_away_is_found_again(
    lost: str, profile: Path, certs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = shutil.copytree(certs, tmp_path / "own")
    tls = Tls(own / "ca.pem", own / "verifier.pem", own / "verifier.key")

    async def scenario() -> None:
        port = 0
        worker = SpeculatorWorker(SpeculatorSettings(emulate=str(profile)))
        await worker.start()

        async def started() -> GrpcServer:
            settings = SpeculatorSettings(
                port=port,
                tls_cert=certs / "speculator.pem",
                tls_key=certs / "speculator.key",
                tls_client_ca=certs / "ca.pem",
            )
            server = GrpcServer(settings, register, role="speculator")
            await server.start()
            await server.admit()
            return server

        def register(server: grpc.aio.Server) -> list[str]:
            add_SpeculatorServiceServicer_to_server(SpeculatorService(worker), server)
            return ["saguaro.v1.SpeculatorService"]

        server = await started()
        port = server.port
        try:
            async with linked(server.address, tls=tls, identity=worker.info.model) as heard:
                await heard.until(lambda: len(heard.sends) == 1)
                (own / lost).rename(tmp_path / lost)
                await server.stop()
                await heard.until(lambda: any("No such file" in reason for reason in heard.reasons))
                server = await started()
                await asyncio.sleep(0.3)  # the file stays away for several tries
                assert len(heard.sends) == 1
                (tmp_path / lost).rename(own / lost)
                await heard.until(lambda: len(heard.sends) == 2)
        finally:
            await server.stop()
            await worker.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    told = [record.message for record in caplog.records if "No such file" in record.message]
    assert len(told) == 1, "each reason is logged once, not at every try"
    assert str(own / lost) in told[0]


def test_bytes_that_are_no_message_cost_their_message_alone() -> None:
    async def script(number: int, context: grpc.aio.ServicerContext) -> None:
        for message in (NO_MESSAGE, GOOD.SerializeToString(), NO_MESSAGE, GOOD.SerializeToString()):
            await context.write(message)
        await peer.take(context)

    peer = Peer(script)

    async def scenario() -> None:
        async with port_of(peer) as address, linked(address) as heard:
            await heard.until(lambda: sum(frame.free_kv_blocks == 7 for frame in heard.frames) == 2)
            assert not heard.reasons
            assert peer.num_streams == 1

    asyncio.run(scenario())


def test_a_reason_that_this_version_does_not_know_is_charged_to_its_sequence() -> None:
    async def script(number: int, context: grpc.aio.ServicerContext) -> None:
        unknown = pb.SequenceStatus(sequence_id=3, epoch=5, reason=99)  # type: ignore[arg-type]
        known = pb.SequenceStatus(sequence_id=4, epoch=6, reason=pb.NOT_SPECULATING_REASON_OVERLOADED)
        await context.write(pb.SpeculateResponse(statuses=[unknown, known]).SerializeToString())
        await peer.take(context)

    peer = Peer(script)

    async def scenario() -> None:
        async with port_of(peer) as address, linked(address) as heard:
            await heard.until(lambda: bool(heard.frames))
            assert heard.frames[0].statuses == (
                SequenceStatus(3, 5, NotSpeculatingReason.MALFORMED),
                SequenceStatus(4, 6, NotSpeculatingReason.OVERLOADED),
            )
            assert not heard.reasons

    asyncio.run(scenario())


async def _cancels(number: int, context: grpc.aio.ServicerContext) -> None:
    await context.abort(grpc.StatusCode.CANCELLED, "the peer thought better of it")


async def _breaks_its_details(number: int, context: grpc.aio.ServicerContext) -> None:
    context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff"),))
    await context.abort(grpc.StatusCode.UNAVAILABLE, "with details that are none")


async def _ends(number: int, context: grpc.aio.ServicerContext) -> None:
    return


async def _sends_too_much(number: int, context: grpc.aio.ServicerContext) -> None:
    entries = pb.SpeculationEntries(sequence_id=1, pair_probs=bytes(17 << 20))
    await context.write(pb.SpeculateResponse(entries=[entries]).SerializeToString())


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (_cancels, "thought better|cancelled"),
        (_breaks_its_details, "DecodeError"),
        (_ends, "ended the stream"),
        (_sends_too_much, "larger than max"),
    ],
)
def test_a_stream_that_ends_in_any_way_is_followed_by_another(fault: Callable[..., object], reason: str) -> None:
    async def script(number: int, context: grpc.aio.ServicerContext) -> None:
        if number < 2:
            await fault(number, context)  # type: ignore[misc]
        else:
            await context.write(GOOD.SerializeToString())
            await peer.take(context)

    peer = Peer(script)

    async def scenario() -> None:
        async with port_of(peer) as address, linked(address) as heard:
            await heard.until(lambda: bool(heard.frames))
            assert len(heard.sends) == 3
            assert len(heard.reasons) == 2
            for told in heard.reasons:
                assert re.search(reason, told), told

    asyncio.run(scenario())


def test_a_stream_that_ends_while_frames_go_out_is_followed_by_another() -> None:
    async def script(number: int, context: grpc.aio.ServicerContext) -> None:
        await context.write(GOOD.SerializeToString())
        await context.read()

    peer = Peer(script)

    async def scenario() -> None:
        async with port_of(peer) as address, linked(address) as heard:
            for attempt in range(1, 21):
                await heard.until(lambda: len(heard.sends) >= attempt)  # noqa: B023
                for step in range(100):
                    heard.sends[-1](VerifierFrame(step, 4, 8))
                    await asyncio.sleep(0)

    asyncio.run(scenario())


def test_a_handshake_that_is_no_message_is_tried_again() -> None:
    async def script(number: int, context: grpc.aio.ServicerContext) -> None:
        await peer.take(context)

    peer = Peer(script, handshakes=[NO_MESSAGE, NO_MESSAGE, HANDSHAKE])

    async def scenario() -> None:
        async with port_of(peer) as address, linked(address) as heard:
            await heard.until(lambda: bool(heard.sends))
            assert all("cannot be read" in reason for reason in heard.reasons)

    asyncio.run(scenario())


def test_a_stream_that_served_is_followed_by_another_at_once_and_one_that_did_not_after_a_pause() -> None:
    lives = asyncio.Event()

    async def script(number: int, context: grpc.aio.ServicerContext) -> None:
        await context.write(GOOD.SerializeToString())
        if number == 0:
            await lives.wait()
        await _sends_too_much(number, context)

    peer = Peer(script)

    async def scenario() -> None:
        clock = asyncio.get_running_loop().time
        async with port_of(peer) as address, linked(address, reconnect_seconds=1.0) as heard:
            await heard.until(lambda: bool(heard.frames))
            await asyncio.sleep(1.3)  # longer than a pause ever is here
            lives.set()
            await heard.until(lambda: len(heard.reasons) == 1)
            lost = clock()
            await heard.until(lambda: len(heard.sends) == 2)
            assert clock() - lost < 0.5
            await heard.until(lambda: len(heard.sends) == 3)
            assert clock() - lost > 0.75

    asyncio.run(scenario())
