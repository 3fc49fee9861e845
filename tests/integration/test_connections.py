"""Hundreds of connections that ask nothing, at a real gateway that may open 256 files: others go on being served."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import grpc
import httpx2
import pytest

from tests.integration.emulated import emulated
from tests.integration.narrow_gateway import MAX_FILES, NarrowGateway, num_closed, running_gateway
from tests.integration.waiting import until

NUM_IDLE, NUM_HALF_SENT = 300, 200
RECEIVE_SECONDS = 3.0
# A client's connection preface, an empty SETTINGS frame and the acknowledgement of the server's.
HTTP2_HELLO = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000") + bytes.fromhex("000000040100000000")
)


def _literal(name: bytes, value: bytes) -> bytes:
    """A header field of HPACK, not indexed, without Huffman coding."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


_FIELDS = b"".join(
    _literal(name, value)
    for name, value in (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/saguaro.v1.GatewayService/Generate"),
        (b":authority", b"x"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
)
# A HEADERS frame with END_HEADERS, of stream 1; no message follows.
CALL_WITHOUT_MESSAGE = len(_FIELDS).to_bytes(3, "big") + bytes.fromhex("010400000001") + _FIELDS


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NarrowGateway]:
    folder = tmp_path_factory.mktemp("narrow")
    with (
        emulated(folder, target_ms=1.0) as trio,
        running_gateway(trio, folder / "mine.toml", folder, "--receive-seconds", str(RECEIVE_SECONDS)) as running,
    ):
        yield running


@pytest.mark.parametrize("door", ["http", "grpc", "grpc after its handshake", "grpc with a call begun"])
def test_bystanders_are_served_while_300_idle_connections_are_held(gateway: NarrowGateway, door: str) -> None:
    assert NUM_IDLE > MAX_FILES
    port = gateway.http_port if door == "http" else gateway.grpc_port
    with (
        httpx2.Client() as held_http,
        grpc.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as held_grpc,
        contextlib.ExitStack() as owned,
    ):
        assert gateway.serves_http(held_http)
        assert gateway.serves_grpc(held_grpc)
        for idle in gateway.connect(port, NUM_IDLE):
            owned.callback(idle.close)
            if door == "grpc after its handshake":
                with contextlib.suppress(OSError):
                    idle.sendall(HTTP2_HELLO)
            if door == "grpc with a call begun":
                with contextlib.suppress(OSError):
                    idle.sendall(HTTP2_HELLO + CALL_WITHOUT_MESSAGE)
        for _ in range(4):
            assert gateway.serves_http(held_http)
            assert gateway.serves_grpc(held_grpc)
            assert gateway.serves_http()  # over a new connection
            assert gateway.serves_grpc()
            time.sleep(0.3)  # a while for what may still come to an end


HALVES = {
    "header": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Ty",
    "body": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    "nothing": b"",
}


@pytest.mark.parametrize("half", HALVES)
def test_200_half_sent_requests_are_ended_in_time_and_hold_up_nobody(gateway: NarrowGateway, half: str) -> None:
    sockets = gateway.connect(gateway.http_port, NUM_HALF_SENT)
    try:
        for item in sockets:
            with contextlib.suppress(OSError):
                item.sendall(HALVES[half])
        assert gateway.serves_http()
        assert gateway.serves_grpc()
        until(lambda: num_closed(sockets) == NUM_HALF_SENT, RECEIVE_SECONDS + 10)
    finally:
        for item in sockets:
            item.close()


def test_a_grpc_call_without_its_message_is_ended_in_time(gateway: NarrowGateway) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel:

        def never() -> Iterator[bytes]:
            time.sleep(RECEIVE_SECONDS + 10)
            yield b""

        call = channel.stream_stream("/saguaro.v1.GatewayService/Generate")(never())
        with pytest.raises(grpc.RpcError, match="message was not there after 3 s") as ended:
            next(call)
        assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_messages_that_cannot_be_decoded_are_told_to_their_callers_and_leave_a_line_not_a_traceback_each(
    gateway: NarrowGateway,
) -> None:
    paths = ("saguaro.v1.GatewayService/Generate", "saguaro.v1.GatewayService/Tokenize", "grpc.health.v1.Health/Check")
    with grpc.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel:
        for _ in range(20):
            for path in paths:
                with pytest.raises(grpc.RpcError, match="cannot be decoded") as refused:
                    next(channel.unary_stream(f"/{path}")(b"\xff\xff\xff", timeout=10))
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not gateway.lines("Traceback")
    assert 1 <= len(gateway.lines("cannot be decoded")) <= 5


def test_what_is_no_http_leaves_a_line_in_a_while_not_one_each(gateway: NarrowGateway) -> None:
    for item in gateway.connect(gateway.http_port, 50):
        item.sendall(b"\x16\x03\x01\r\n\r\n")
        assert item.recv(100).startswith(b"HTTP/1.1 400")
        item.close()
    assert 1 <= len(gateway.lines("Invalid HTTP request")) <= 5


def test_a_gateway_that_is_to_take_more_connections_than_it_may_open_files_says_so_and_does_not_start() -> None:
    asked = ["--port", "0", "--http-port", "none", "--max-connections", "5000"]
    command = ["bash", "-c", f'ulimit -n {MAX_FILES}; exec "$0" -m gateway "$@"', sys.executable, *asked]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "max_connections is 5000; the gateway may open 256 files, which leaves room for" in ended.stderr
