"""The synchronous client; `saguaro.client.aio` is its twin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import grpc

from saguaro.answers import AnswerDelta, AnswerStarted, ServedModel
from saguaro.channel import channel_options
from saguaro.client.answer import Answer, AnswerBuilder
from saguaro.client.requests import DEFAULT_ADDRESS, GenerateOptions, PromptLike, build_request, check_token_ids
from saguaro.errors import SequenceFault
from saguaro.types import TokenIds
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from saguaro.wire.gateway import answer_event_from_proto, served_model_from_proto
from saguaro.wire.status import error_of


class AnswerStream:
    """Deltas of one answer, while they come; those of several choices (`n`) come mixed, each with its index.

    Leaving the `with` block before the end cancels the answer.
    """

    def __init__(self, call: Any, peer: str, sent_at: float, num_choices: int) -> None:
        self._call = call
        self._peer = peer
        self._builder = AnswerBuilder(sent_at, num_choices)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __iter__(self) -> Iterator[AnswerDelta]:
        try:
            for message in self._call:
                event = answer_event_from_proto(message)
                delta = None if event is None else self._builder.accept(event, time.monotonic())
                if delta is not None:
                    yield delta
        except grpc.RpcError as error:
            raise error_of(error, self._peer) from None
        if self._builder.results is None:
            raise SequenceFault(f"{self._peer} ended the answer without saying why")

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
            raise RuntimeError("the answer has not ended; read the stream to its end, or call finish()")
        return self._builder.results

    def finish(self) -> Answer:
        """Read to the end and return the whole answer, of several the first: see `results`."""
        for _ in self:
            pass
        return self.result

    def cancel(self) -> None:
        """End the answer here and at the verifier; harmless after its end."""
        self._call.cancel()


class Client:
    """A connection to a gateway. Use it as a context manager, or call `close`. Threads may share one."""

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        self._peer = f"the gateway at {address}"
        self._channel = grpc.insecure_channel(address, options=channel_options())
        self._stub: Any = gateway_pb2_grpc.GatewayServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends running answers too."""
        self._channel.close()

    def generate(
        self, prompt: PromptLike, *, timeout_seconds: float | None = None, **options: Unpack[GenerateOptions]
    ) -> AnswerStream:
        """Start an answer to text, messages or token ids. `timeout_seconds` is for the whole answer.

        Example: `client.generate([{"role": "user", "content": "Hi"}], temperature=0.8, seed=7).finish().text`.
        Raises InvalidRequest at once for what no gateway would take; other errors come while reading.
        """
        request = build_request(prompt, options)
        sent_at = time.monotonic()
        call = self._stub.Generate(request, timeout=timeout_seconds)
        return AnswerStream(call, self._peer, sent_at, request.n)

    def tokenize(self, text: str, *, model: str = "", timeout_seconds: float | None = None) -> TokenIds:
        """Token ids of text as it stands."""
        response = self._call(self._stub.Tokenize, pb.TokenizeRequest(model=model, text=text), timeout_seconds)
        return tuple(response.token_ids)

    def detokenize(self, token_ids: Sequence[int], *, model: str = "", timeout_seconds: float | None = None) -> str:
        """Text of token ids; special tokens are left out."""
        request = pb.DetokenizeRequest(model=model, token_ids=check_token_ids("token_ids", token_ids))
        return str(self._call(self._stub.Detokenize, request, timeout_seconds).text)

    def list_models(self, *, timeout_seconds: float | None = None) -> tuple[ServedModel, ...]:
        """What can be asked for, and whether it is speculated now."""
        response = self._call(self._stub.ListModels, pb.ListModelsRequest(), timeout_seconds)
        return tuple(served_model_from_proto(item) for item in response.models)

    def _call(self, method: Callable[..., Any], request: Any, timeout_seconds: float | None) -> Any:
        try:
            return method(request, timeout=timeout_seconds)
        except grpc.RpcError as error:
            raise error_of(error, self._peer) from None
