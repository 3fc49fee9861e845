"""Fake verifiers on real sockets and what answers with them, without a gateway's own port."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from gateway.answers import Answers
from gateway.metrics import GatewayMetrics
from gateway.requests import Limits
from gateway.text import TextModel
from gateway.text_workers import TextWorkers
from gateway.verifiers import VerifierPool
from saguaro.answers import AnswerRequest, TokenPrompt
from saguaro.client.answer import Answer, AnswerBuilder
from saguaro.server import GrpcServer
from tests.unit.gateway.house import FakeVerifier, verifier_on

ANSWER = "The saguaro 🦎🦎 is größer als ein Haus."  # a lizard is four tokens: breaks come inside of it
PROMPT = tuple(range(5, 25))


@dataclass(frozen=True)
class Verifiers:
    """Fakes, their servers, and the pool of them."""

    text: TextModel
    fakes: list[FakeVerifier]
    servers: list[GrpcServer]
    pool: VerifierPool
    answers: Answers

    async def answer(self, request: AnswerRequest, request_id: str = "r") -> tuple[Answer, ...]:
        """Every choice, whole."""
        builder = AnswerBuilder(0.0, request.n)
        async for event in self.answers.generate(request, request_id, timeout_seconds=30):
            builder.accept(event, 0.0)
        assert builder.results is not None
        return builder.results

    @property
    def server_of(self) -> dict[str, GrpcServer]:
        return {server.address: server for server in self.servers}

    async def restart(self, index: int, fake: FakeVerifier) -> None:
        """Another verifier at the same address."""
        await self.servers[index].stop()
        self.fakes[index] = fake
        self.servers[index] = verifier_on(self.servers[index].port, fake)
        await self.servers[index].start()
        await self.servers[index].admit()


def fake_for(text: TextModel, **options: object) -> FakeVerifier:
    settings = {"answer": (*text.encode(ANSWER), 1), "vocabulary_size": text.vocabulary_size, **options}
    kind = settings.pop("kind", FakeVerifier)
    return kind(**settings)  # type: ignore[operator,no-any-return]


@contextlib.asynccontextmanager
async def running_verifiers(
    folder: Path,
    *options: dict[str, object],
    patience_seconds: float = 10.0,
    num_usable: int | None = None,
    max_message_bytes: int = 1 << 20,
) -> AsyncIterator[Verifiers]:
    """One fake for each of `options`, all usable, or `num_usable` of them."""
    text = TextModel.from_folder(folder)
    fakes = [fake_for(text, **item) for item in options]
    async with contextlib.AsyncExitStack() as owned:
        servers = [verifier_on(0, fake) for fake in fakes]
        for server in servers:
            await server.start()
            await server.admit()
        addresses = ",".join(item.address for item in servers)
        pool = VerifierPool(addresses, max_message_bytes=max_message_bytes, keepalive_seconds=20)
        owned.push_async_callback(pool.close)
        await pool.start()
        while len(pool.usable) < (len(fakes) if num_usable is None else num_usable):
            assert await pool.wait_for_change(10), pool.complaints
        workers = TextWorkers(folder, num_workers=1, max_seconds=30)
        owned.push_async_callback(workers.close)
        answers = Answers(text, workers, pool, Limits(64), GatewayMetrics(), patience_seconds=patience_seconds)
        try:
            yield Verifiers(text, fakes, servers, pool, answers)
        finally:
            for server in servers:
                await server.stop()


def request(**options: object) -> AnswerRequest:
    return AnswerRequest(TokenPrompt(PROMPT), **options)  # type: ignore[arg-type]
