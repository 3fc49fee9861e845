"""The asynchronous client; `saguaro.client.sync` is its twin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import grpc

from saguaro.answers import AnswerDelta, AnswerStarted, ServedModel
from saguaro.channel import Tls, open_aio_channel
from saguaro.client.answer import Answer, AnswerBuilder
from saguaro.client.requests import (
    DEFAULT_ADDRESS,
    GenerateOptions,
    PromptLike,
    build_request,
    check_token_ids,
    session_request,
)
from saguaro.client.retry import Attempts, Retry
from saguaro.client.sync import Resume, Start
from saguaro.client.target import balanced_options, target_of
from saguaro.client.texts import check_key, check_text
from saguaro.client.tools import MessageLike
from saguaro.errors import SequenceFault
from saguaro.sessions import SessionInfo
from saguaro.types import ClassPolicy, PolicyReport, TokenIds, TrafficClass
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from saguaro.wire.gateway import answer_event_from_proto, served_model_from_proto
from saguaro.wire.policy import policy_changes_to_proto, policy_report_from_proto
from saguaro.wire.sessions import session_from_proto


class AsyncAnswerStream:
    """Deltas of one answer, while they come; those of several choices (`n`) come mixed, each with its index.

    Leaving the `async with` block before the end cancels the answer, here and at the verifier.
    """

    def __init__(
        self, start: Start, attempts: Attempts, peer: str, num_choices: int, resume: Resume | None = None
    ) -> None:
        """`resume`: of a resumable answer, how to go on with it."""
        self._start = start
        self._resume = resume
        self._attempts = attempts
        self._peer = peer
        self._num_choices = num_choices
        self._sent_at = time.monotonic()
        self._cancelled = asyncio.Event()
        self._has_begun = False  # a delta is out
        self._begin()

    def _begin(self) -> None:
        self._num_events = 0
        self._builder = AnswerBuilder(self._sent_at, self._num_choices)
        self._call = self._start(self._attempts.timeout_seconds)

    def _begin_again(self) -> None:
        """Go on after the last event where the gateway keeps the answer, else from the beginning."""
        started = self._builder.started
        if self._resume is None or started is None:
            self._begin()
        else:
            self._call = self._resume(started.request_id, self._num_events, self._attempts.timeout_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    async def __aiter__(self) -> AsyncIterator[AnswerDelta]:
        while self._builder.results is None:
            try:
                async for message in self._call:
                    response = message.response if isinstance(message, pb.ResumeStreamResponse) else message
                    self._num_events = response.sequence_number
                    event = answer_event_from_proto(response)
                    delta = None if event is None else self._builder.accept(event, time.monotonic())
                    if delta is not None:
                        self._has_begun = True
                        yield delta
            except grpc.aio.AioRpcError as error:
                if self._cancelled.is_set():
                    return
                if self._has_begun and self._resume is None:
                    self._attempts.give_up()
                if await self._is_cancelled_within(self._attempts.wait_after(error)):
                    return
                self._begin_again()
            except asyncio.CancelledError:
                # gRPC's word for a call that was cancelled here, too; that of a task must go on its way.
                if self._cancelled.is_set() and not _is_task_cancelled():
                    return
                raise
            else:
                if self._builder.results is None:
                    raise SequenceFault(f"{self._peer} ended the answer without saying why")

    async def _is_cancelled_within(self, seconds: float) -> bool:
        try:
            return await asyncio.wait_for(self._cancelled.wait(), seconds)
        except TimeoutError:
            return False

    @property
    def started(self) -> AnswerStarted | None:
        """Request id, model, seed and prompt tokens; None before the first delta."""
        return self._builder.started

    @property
    def result(self) -> Answer:
        """The whole answer, of several the first; RuntimeError before the stream has ended."""
        return self.results[0]

    @property
    def results(self) -> tuple[Answer, ...]:
        """Every choice, in order; RuntimeError before the stream has ended."""
        if self._builder.results is None:
            raise RuntimeError("the answer has not ended; read the stream to its end, or await finish()")
        return self._builder.results

    async def finish(self) -> Answer:
        """Read to the end and return the whole answer, of several the first: see `results`."""
        async for _ in self:
            pass
        return self.result

    def cancel(self) -> None:
        """End the answer here and at the verifier: the iteration ends. Harmless after the end."""
        self._cancelled.set()
        self._call.cancel()


class AsyncClient:
    """A connection to a gateway, or to several alike. Use it as an asynchronous context manager, or await `close`.

    >>> async def ask(question):
    ...     async with AsyncClient("127.0.0.1:50051") as client:
    ...         async with client.generate([{"role": "user", "content": question}]) as stream:
    ...             async for delta in stream:
    ...                 print(delta.text, end="")
    >>> asyncio.run(ask("How does the saguaro stand?"))
    It stands still.
    """

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        api_key: str | None = None,
        tls: Tls | None = None,
        retry: Retry = Retry(),  # noqa: B008  # frozen
    ) -> None:
        """As of `Client`."""
        addresses = [address] if isinstance(address, str) else list(address)
        self._peer = f"the gateway at {' or '.join(addresses)}"
        self._retry = retry
        self._metadata = () if api_key is None else (("authorization", f"Bearer {check_key(api_key)}"),)
        self._channel = open_aio_channel(target_of(addresses), tls, balanced_options(addresses))
        self._stub: Any = gateway_pb2_grpc.GatewayServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends running answers too."""
        await self._channel.close()

    def generate(
        self, prompt: PromptLike, *, timeout_seconds: float | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncAnswerStream:
        """Start an answer to text, messages or token ids. `timeout_seconds` is for the whole answer.

        Example: `(await client.generate("Once", max_tokens=8).finish()).text`. Raises as `Client.generate` does.
        """
        request = build_request(prompt, options)

        def start(timeout: float | None) -> Any:
            return self._stub.Generate(request, timeout=timeout, metadata=self._metadata)

        def resume(request_id: str, num_events: int, timeout: float | None) -> Any:
            rest = pb.ResumeStreamRequest(request_id=request_id, after_sequence_number=num_events)
            return self._stub.ResumeStream(rest, timeout=timeout, metadata=self._metadata)

        attempts = Attempts(self._retry, self._peer, timeout_seconds)
        return AsyncAnswerStream(start, attempts, self._peer, request.n, resume if request.resumable else None)

    async def tokenize(self, text: str, *, model: str = "", timeout_seconds: float | None = None) -> TokenIds:
        """Token ids of text as it stands."""
        response = await self._call(
            self._stub.Tokenize,
            pb.TokenizeRequest(model=check_text("model", model), text=check_text("text", text)),
            timeout_seconds,
        )
        return tuple(response.token_ids)

    async def detokenize(
        self, token_ids: Sequence[int], *, model: str = "", timeout_seconds: float | None = None
    ) -> str:
        """Text of token ids; special tokens are left out."""
        request = pb.DetokenizeRequest(
            model=check_text("model", model), token_ids=check_token_ids("token_ids", token_ids)
        )
        return str((await self._call(self._stub.Detokenize, request, timeout_seconds)).text)

    async def create_session(
        self, messages: Sequence[MessageLike] = (), *, model: str = "", timeout_seconds: float | None = None
    ) -> SessionInfo:
        """A conversation that the gateway keeps; it begins with `messages`, as a system prompt. Its turns are
        `generate(new_messages, session_id=...)`."""
        request = session_request(messages, model)
        return session_from_proto((await self._call(self._stub.CreateSession, request, timeout_seconds)).session)

    async def get_session(self, session_id: str, *, timeout_seconds: float | None = None) -> SessionInfo:
        """What is kept. Raises SessionNotFound."""
        request = pb.GetSessionRequest(session_id=check_text("session_id", session_id))
        return session_from_proto((await self._call(self._stub.GetSession, request, timeout_seconds)).session)

    async def delete_session(self, session_id: str, *, timeout_seconds: float | None = None) -> None:
        """Forget it. Raises SessionNotFound."""
        await self._call(
            self._stub.DeleteSession,
            pb.DeleteSessionRequest(session_id=check_text("session_id", session_id)),
            timeout_seconds,
        )

    async def list_models(self, *, timeout_seconds: float | None = None) -> tuple[ServedModel, ...]:
        """What can be asked for, and whether it is speculated now."""
        response = await self._call(self._stub.ListModels, pb.ListModelsRequest(), timeout_seconds)
        return tuple(served_model_from_proto(item) for item in response.models)

    async def get_policy(self, *, timeout_seconds: float | None = None) -> PolicyReport:
        """The deployment's policy by traffic class, and which verifiers keep to it."""
        request = pb.GatewayServiceGetPolicyRequest()
        return policy_report_from_proto(await self._call(self._stub.GetPolicy, request, timeout_seconds))

    async def set_policy(
        self, changes: Mapping[TrafficClass, ClassPolicy], *, timeout_seconds: float | None = None
    ) -> PolicyReport:
        """Replace the policies of these classes, each as a whole; the others stay. In force within a second.

        Example: `await client.set_policy({TrafficClass.LATENCY: ClassPolicy(max_lookahead=4)})`. Raises InvalidRequest;
        PermissionDenied where keys are asked for and this one may not.
        """
        request = pb.GatewayServiceSetPolicyRequest(policy=policy_changes_to_proto(changes))
        return policy_report_from_proto(await self._call(self._stub.SetPolicy, request, timeout_seconds))

    async def _call(self, method: Callable[..., Any], request: Any, timeout_seconds: float | None) -> Any:
        attempts = Attempts(self._retry, self._peer, timeout_seconds)
        while True:
            try:
                return await method(request, timeout=attempts.timeout_seconds, metadata=self._metadata)
            except grpc.aio.AioRpcError as error:
                await asyncio.sleep(attempts.wait_after(error))


def _is_task_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
