"""The life of one request at the gateway: check, tokenize, generate at the verifier, give out text."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Iterator

from gateway.choice import Choice
from gateway.interleave import interleaved
from gateway.metrics import GatewayMetrics
from gateway.requests import generation_requests, resolve_sampling
from gateway.text import TextModel
from gateway.verifier_client import VerifierClient
from saguaro.answers import AnswerEvent, AnswerPrompt, AnswerRequest, AnswerStarted, Prompt, ServedModel, TokenPrompt
from saguaro.errors import ConfigurationError, InvalidRequest, SequenceFault, Unavailable
from saguaro.types import (
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    PromptLogprobs,
    TokenIds,
    TokenRun,
    VerifierInfo,
)
from saguaro.validation import (
    validate_answer_request,
    validate_model,
    validate_prompt,
    validate_sampled_tokens,
    validate_vocabulary,
)

logger = logging.getLogger(__name__)


class Answers:
    """Answers with one model's text side and one verifier."""

    def __init__(
        self, text: TextModel, verifier: VerifierClient, metrics: GatewayMetrics, *, max_concurrent: int
    ) -> None:
        self._text = text
        self._verifier = verifier
        self._metrics = metrics
        self._max_concurrent = max_concurrent
        self._num_running = 0

    async def generate(
        self, request: AnswerRequest, request_id: str, timeout_seconds: float
    ) -> AsyncGenerator[AnswerEvent]:
        """Started, deltas, one Finished a choice. Raises from the error tree; closing the iterator early aborts all."""
        with self._metrics.meter(request.traffic_class) as meter:
            events = self._events(request, request_id, timeout_seconds)
            async with contextlib.aclosing(events):
                async for event in events:
                    meter.take(event)
                    yield event

    async def _events(
        self, request: AnswerRequest, request_id: str, timeout_seconds: float
    ) -> AsyncGenerator[AnswerEvent]:
        validate_answer_request(request)
        with self._admitted(request.n):
            deadline = time.monotonic() + timeout_seconds
            info = await self._known(request.model)
            sampling = resolve_sampling(request)
            validate_sampled_tokens(sampling, info.model)
            prompt = await self._tokens_of(request.prompt)
            validate_prompt(prompt, info.model)
            generations = generation_requests(request, request_id, prompt, sampling)
            is_prefilled = asyncio.Event()
            choices = [
                self._choice(generation, Choice(self._text, request, index), index, is_prefilled, deadline)
                for index, generation in enumerate(generations)
            ]
            events = choices[0] if len(choices) == 1 else interleaved(choices)
            async with contextlib.aclosing(events):
                async for event in events:
                    if isinstance(event, GenerationStarted):
                        yield AnswerStarted(request_id, info.model.name, event.seed, prompt, event.acceptance_mode)
                    else:
                        yield event

    async def _tokens_of(self, prompt: Prompt) -> TokenIds:
        if isinstance(prompt, TokenPrompt):
            return prompt.token_ids
        # Tokenizing a long prompt takes longer than a step; other streams go on meanwhile.
        return await asyncio.to_thread(self._text.encode_prompt, prompt)

    async def _choice(
        self, request: GenerationRequest, choice: Choice, index: int, is_prefilled: asyncio.Event, deadline: float
    ) -> AsyncGenerator[GenerationStarted | AnswerEvent]:
        """One generation's events. Later choices begin when the first has its first token: then the verifier has the
        prompt's blocks, and they share them.
        """
        if index > 0:
            await is_prefilled.wait()
        timeout_seconds = max(deadline - time.monotonic(), 0.0)
        async with contextlib.aclosing(self._verifier.generate(request, timeout_seconds)) as events:
            async for event in events:
                match event:
                    case GenerationStarted() if index == 0:
                        yield event
                    case PromptLogprobs():
                        yield AnswerPrompt(event.logprobs)
                    case TokenRun() if not choice.is_stopped:
                        is_prefilled.set()
                        yield choice.take(event)
                        if choice.is_stopped:
                            await self._verifier.abort(request.request_id)
                    case GenerationFinished():
                        yield choice.finish(event)
                        return
        raise SequenceFault(f"the verifier ended request {request.request_id} without saying why")

    async def tokenize(self, model: str, text: str) -> TokenIds:
        """Text as it stands, to ids."""
        await self._known(model)
        return await asyncio.to_thread(self._text.encode, text)

    async def detokenize(self, model: str, token_ids: TokenIds) -> str:
        """Ids to text, special tokens left out. Raises InvalidRequest for ids outside of the vocabulary."""
        info = await self._known(model)
        validate_vocabulary("token_ids", token_ids, info.model)
        return await asyncio.to_thread(self._text.decode, list(token_ids))

    def token_bytes(self, token_id: int) -> bytes:
        """What one token adds to a text."""
        return self._text.token_bytes(token_id)

    @property
    def num_running(self) -> int:
        """Answers in flight, each choice one."""
        return self._num_running

    @property
    def is_full(self) -> bool:
        """Whether the next request would be refused for want of room."""
        return self._num_running >= self._max_concurrent

    async def served_model(self) -> ServedModel:
        """The verifier's model and whether it is speculated, asked anew."""
        info = await self._verifier.refresh_info()
        return ServedModel(info.model, info.speculating, info.not_speculating_reason)

    async def _known(self, model: str) -> VerifierInfo:
        info = await self._verifier.info()
        validate_model(model, info.model)
        check_tokenizer(self._text, info)
        return info

    @contextlib.contextmanager
    def _admitted(self, num_choices: int) -> Iterator[None]:
        if num_choices > self._max_concurrent:
            raise InvalidRequest("n", f"n is {num_choices}; this gateway takes {self._max_concurrent} answers at once")
        if self._num_running + num_choices > self._max_concurrent:
            raise Unavailable(
                f"{self._num_running} answers are in flight; this gateway takes {self._max_concurrent} at once"
            )
        self._count(num_choices)
        try:
            yield
        finally:
            self._count(-num_choices)

    def _count(self, num_choices: int) -> None:
        self._num_running += num_choices
        self._metrics.running.set(self._num_running)


def check_tokenizer(text: TextModel, info: VerifierInfo) -> None:
    """Raises ConfigurationError where the gateway would read the verifier's ids with another model's tokenizer."""
    if text.vocabulary_size != info.model.usable_vocabulary_tokens:
        raise ConfigurationError(
            f"the gateway's tokenizer has {text.vocabulary_size} tokens, the verifier's model {info.model.name} "
            f"{info.model.usable_vocabulary_tokens}; set --tokenizer to the verifier's target"
        )
