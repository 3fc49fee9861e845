"""The speculator dies, hangs, comes back, or does not fit: streams go on with the same tokens."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from saguaro.cli.trio import Trio
from saguaro.client import Answer, Client
from tests.integration.speculating import await_speculation
from tests.tiny_models import write_tiny_model

PROMPT = list(range(65, 91))
LONG = {"max_tokens": 600, "ignore_eos": True, "temperature": 0.7, "seed": 5}


@pytest.fixture(scope="module")
def trio(tiny_target: Path, tiny_draft: Path) -> Iterator[Trio]:
    # Fixed, so that speculation and waits happen whether they pay on this machine or not.
    flags = ["--reconnect-seconds", "0.2", "--policy", "fixed:4,8,inf"]
    # Random weights do not survive int8: the draft would never agree.
    exact = ["--linear", "stock"]
    with Trio(target=str(tiny_target), draft=str(tiny_draft), verifier_flags=flags, speculator_flags=exact) as running:
        yield running


@pytest.fixture(scope="module")
def expected(trio: Trio) -> Answer:
    return ask(trio, speculation=False)


def ask(trio: Trio, **options: object) -> Answer:
    with Client(trio.gateway_address) as client:
        return client.generate(PROMPT, **{**LONG, **options}).finish()  # type: ignore[arg-type]


def ask_and_interrupt(trio: Trio, interrupt: Callable[[], None], after_tokens: int = 60) -> Answer:
    """A long answer, with `interrupt` called once in its midst."""
    with Client(trio.gateway_address) as client:
        stream = client.generate(PROMPT, include_rounds=True, **LONG)  # type: ignore[arg-type]
        seen = 0
        for delta in stream:
            before, seen = seen, seen + len(delta.token_ids)
            if before < after_tokens <= seen:
                interrupt()
        return stream.result


def test_killed_in_mid_stream_and_restarted(trio: Trio, expected: Answer) -> None:
    await_speculation(trio)
    answer = ask_and_interrupt(trio, lambda: trio.end("speculator", signal.SIGKILL))
    assert answer.token_ids == expected.token_ids
    assert answer.speculation.num_accepted_tokens > 0
    assert not answer.speculation.speculating
    assert "away" in answer.speculation.reason or "stream" in answer.speculation.reason

    verifier = trio.processes["verifier"].pid
    trio.start("speculator")
    await_speculation(trio)
    again = ask(trio)
    assert again.token_ids == expected.token_ids
    assert again.speculation.speculating
    assert again.speculation.num_accepted_tokens > 0
    assert trio.processes["verifier"].pid == verifier
    assert trio.processes["verifier"].exit_code is None


@pytest.mark.slow
def test_stopped_in_mid_stream_and_continued(trio: Trio, expected: Answer) -> None:
    await_speculation(trio)
    pid = trio.processes["speculator"].pid
    try:
        answer = ask_and_interrupt(trio, lambda: os.kill(pid, signal.SIGSTOP))
        assert answer.token_ids == expected.token_ids
        assert not answer.speculation.speculating
        # Three waits of at most a second, then nothing waits for the stopped process any more.
        assert answer.speculation.cache_late + answer.speculation.cache_misses < answer.speculation.num_rounds
        assert ask(trio).token_ids == expected.token_ids
    finally:
        os.kill(pid, signal.SIGCONT)
    await_speculation(trio)
    assert ask(trio).speculation.num_accepted_tokens > 0


@pytest.mark.slow
def test_restarted_in_mid_stream_the_stream_speculates_again(trio: Trio, expected: Answer) -> None:
    await_speculation(trio)

    def restart() -> None:
        trio.restart("speculator", signal.SIGKILL)
        await_speculation(trio)

    # The stream is slow enough to see the restart only if its reader is: the client reads on after it.
    answer = ask_and_interrupt(trio, restart)
    assert answer.token_ids == expected.token_ids
    await_speculation(trio)
    assert ask(trio).speculation.speculating


def test_a_draft_with_another_tokenizer_is_not_used_and_everyone_says_so(tiny_target: Path, tmp_path: Path) -> None:
    stranger = write_tiny_model(tmp_path / "stranger", seed=3, extra_token="<|stranger|>", max_positions=4096)
    with Trio(target=str(tiny_target), draft=str(stranger), log_folder=tmp_path) as trio:
        await_speculation(trio, reason="tokenizer")
        answer = ask(trio, max_tokens=20)
        assert answer.num_generated_tokens == 20
        assert not answer.speculation.speculating
        assert "tokenizer" in answer.speculation.reason
        with Client(trio.gateway_address) as client:
            assert "tokenizer" in client.list_models()[0].not_speculating_reason
    assert "tokenizer" in (tmp_path / "verifier.log").read_text()


def test_a_dropped_client_frees_the_verifiers_blocks(trio: Trio) -> None:
    import grpc

    from saguaro.v1 import verifier_pb2
    from saguaro.v1.verifier_pb2_grpc import VerifierServiceStub

    with Client(trio.gateway_address) as client, client.generate(PROMPT, **LONG) as stream:  # type: ignore[arg-type]
        next(iter(stream))
    with grpc.insecure_channel(trio.verifier_address) as channel:
        stub = VerifierServiceStub(channel)
        deadline = time.monotonic() + 10
        while (load := stub.GetLoad(verifier_pb2.GetLoadRequest(), timeout=5)).num_running:
            assert time.monotonic() < deadline, load
            time.sleep(0.05)
        assert load.free_kv_blocks == load.num_kv_blocks
