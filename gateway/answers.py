"""The life of one request at the gateway: check, tokenize, generate at the verifier, give out text."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Iterator, Sequence
from typing import TypeVar

from gateway.choice import Choice
from gateway.guard import current_principal
from gateway.interleave import interleaved
from gateway.metrics import GatewayMetrics
from gateway.prompts import PromptBound, decoded, packed, prompt_ids, size_of, text_ids
from gateway.requests import Limits, generation_requests, resolve_sampling
from gateway.text import TextModel
from gateway.text_workers import TextWorkers
from gateway.tools import explained
from gateway.verifiers import Generation, VerifierPool
from saguaro.answers import (
    AnswerDelta,
    AnswerEvent,
    AnswerPrompt,
    AnswerRequest,
    AnswerStarted,
    Prompt,
    ServedModel,
    TextPrompt,
    TokenPrompt,
)
from saguaro.errors import ConfigurationError, DeadlineExceeded, InvalidRequest, Unavailable
from saguaro.tools import Tool
from saguaro.types import (
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    ModelIdentity,
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

Result = TypeVar("Result")


class Answers:
    """Answers with one model's text side and its verifiers. Prompts become tokens in the `workers`.

    An answer whose verifier is lost waits for up to `patience_seconds` for one that goes on with it.
    """

    def __init__(
        self,
        text: TextModel,
        workers: TextWorkers,
        verifiers: VerifierPool,
        limits: Limits,
        metrics: GatewayMetrics,
        *,
        patience_seconds: float,
        log_prompts: bool = False,
    ) -> None:
        self._text = text
        self._workers = workers
        self._verifiers = verifiers
        self._limits = limits
        self._metrics = metrics
        self._patience_seconds = patience_seconds
        self._log_prompts = log_prompts
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
        request = self._limits.bounded(request)
        validate_answer_request(request)
        allowance = current_principal().allowance
        with self._admitted(request.n), allowance.answering(request.n):
            deadline = time.monotonic() + timeout_seconds
            info = self._known(request.model)
            sampling, use = resolve_sampling(request), request.tool_use
            calling = None if use is None else self._text.calling(use)
            if calling is not None:
                sampling = calling.constrained(sampling)
            validate_sampled_tokens(sampling, info.model)
            prompt = await self.until(deadline, self._tokens_of(request.prompt, use.tools if use else ()))
            validate_prompt(prompt, info.model)
            self._limits.check_prompt(prompt)
            allowance.spend_tokens(len(prompt))
            if self._log_prompts:
                logger.info("request %s asks %r", request_id, request.prompt)
            generations = generation_requests(request, request_id, prompt, sampling)
            is_prefilled = asyncio.Event()
            choices = [
                self._choice(
                    generation, info.model, Choice(self._text, request, index, calling), index, is_prefilled, deadline
                )
                for index, generation in enumerate(generations)
            ]
            events = choices[0] if len(choices) == 1 else interleaved(choices)
            try:
                async with contextlib.aclosing(events), explained(calling):
                    async for event in events:
                        if isinstance(event, GenerationStarted):
                            yield AnswerStarted(request_id, info.model.name, event.seed, prompt, event.acceptance_mode)
                            continue
                        if isinstance(event, AnswerDelta):
                            allowance.spend_tokens(len(event.token_ids))
                        yield event
            except DeadlineExceeded:
                raise DeadlineExceeded(f"the answer was not finished within {timeout_seconds:.3g} s") from None

    async def _tokens_of(self, prompt: Prompt, tools: Sequence[Tool]) -> TokenIds:
        if isinstance(prompt, TokenPrompt):
            return prompt.token_ids
        bound = self.prompt_bound()
        if isinstance(prompt, TextPrompt):
            bound.check_text(prompt.text)
        return tuple(await self._workers.run(prompt_ids, size_of(prompt), prompt, tools, bound))

    def prompt_bound(self) -> PromptBound:
        """How long a prompt may be for the verifiers' model."""
        return PromptBound(self._verifiers.info().model.context_limit_tokens, self._text.longest_token_bytes)

    async def until(self, deadline: float, work: Awaitable[Result]) -> Result:
        """What `work` returns. Raises DeadlineExceeded at `deadline`, in seconds of the monotonic clock."""
        try:
            async with asyncio.timeout(deadline - time.monotonic()) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlineExceeded(
                "the time for the answer ended before its prompt was rendered and tokenized"
            ) from None

    async def _choice(
        self,
        request: GenerationRequest,
        model: ModelIdentity,
        choice: Choice,
        index: int,
        is_prefilled: asyncio.Event,
        deadline: float,
    ) -> AsyncGenerator[GenerationStarted | AnswerEvent]:
        """One generation's events. Later choices begin when the first has its first token: then the verifier has the
        prompt's blocks, and they share them.
        """
        if index > 0:
            await is_prefilled.wait()
        generation = Generation(
            self._verifiers, request, model, patience_seconds=self._patience_seconds, must_start=index > 0
        )
        async with contextlib.aclosing(generation.events(max(deadline - time.monotonic(), 0.0))) as events:
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
                            generation.stop()
                    case GenerationFinished():
                        yield choice.finish(event)

    async def tokenize(self, model: str, text: str) -> TokenIds:
        """Text as it stands, to ids. Raises InvalidRequest for one that is longer than any prompt."""
        self._known(model)
        self.prompt_bound().check_text(text, "the text")
        return tuple(await self._workers.run(text_ids, len(text), text))

    async def detokenize(self, model: str, token_ids: TokenIds) -> str:
        """Ids to text, special tokens left out. Raises InvalidRequest for ids outside of the vocabulary, or for more
        than the context holds.
        """
        info = self._known(model)
        most = info.model.context_limit_tokens
        if len(token_ids) > most:
            raise InvalidRequest("token_ids", f"there are {len(token_ids)} token ids; at most {most} are taken")
        validate_vocabulary("token_ids", token_ids, info.model)
        return await self._workers.run(decoded, len(token_ids), packed(token_ids))

    def identity(self, model: str) -> ModelIdentity:
        """What is served under the name. Raises ModelNotFound."""
        return self._known(model).model

    @property
    def text(self) -> TextModel:
        """The model's text side."""
        return self._text

    @property
    def workers(self) -> TextWorkers:
        """Where text becomes tokens."""
        return self._workers

    def token_bytes(self, token_id: int) -> bytes:
        """What one token adds to a text."""
        return self._text.token_bytes(token_id)

    @property
    def limits(self) -> Limits:
        """What this deployment serves."""
        return self._limits

    @property
    def num_running(self) -> int:
        """Answers in flight, each choice one."""
        return self._num_running

    @property
    def is_full(self) -> bool:
        """Whether the next request would be refused for want of room."""
        return self._num_running >= self._limits.max_concurrent

    @property
    def verifiers(self) -> VerifierPool:
        """Who generates."""
        return self._verifiers

    async def served_model(self) -> ServedModel:
        """The verifiers' model and whether it is speculated by all of them, asked anew."""
        infos = await self._verifiers.ask_all()
        reasons = dict.fromkeys(info.not_speculating_reason for info in infos if not info.speculating)
        return ServedModel(infos[0].model, not reasons, "; ".join(reasons))

    async def served_models(self) -> tuple[ServedModel, ...]:
        """Those that the caller may ask for."""
        served = await self.served_model()
        return (served,) if current_principal().may_ask(served.model.name) else ()

    def _known(self, model: str) -> VerifierInfo:
        info = self._verifiers.info()
        validate_model(model, info.model)
        current_principal().check_model(info.model.name)
        check_tokenizer(self._text, info)
        return info

    @contextlib.contextmanager
    def _admitted(self, num_choices: int) -> Iterator[None]:
        most = self._limits.max_concurrent
        if num_choices > most:
            raise InvalidRequest("n", f"n is {num_choices}; this gateway takes {most} answers at once")
        if self._num_running + num_choices > most:
            raise Unavailable(f"{self._num_running} answers are in flight; this gateway takes {most} at once")
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
