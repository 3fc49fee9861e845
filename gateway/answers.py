"""The life of one request at the gateway: check, tokenize, generate at the verifier, give out text."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterator

from gateway.detokenize import IncrementalDetokenizer
from gateway.requests import generation_request, resolve_sampling
from gateway.text import TextModel
from gateway.verifier_client import VerifierClient
from saguaro.answers import AnswerDelta, AnswerEvent, AnswerFinished, AnswerRequest, AnswerStarted, ServedModel
from saguaro.errors import ConfigurationError, SequenceFault, Unavailable
from saguaro.types import GenerationFinished, GenerationStarted, TokenIds, TokenRun, VerifierInfo
from saguaro.validation import validate_model, validate_prompt, validate_vocabulary

logger = logging.getLogger(__name__)


class Answers:
    """Answers with one model's text side and one verifier."""

    def __init__(self, text: TextModel, verifier: VerifierClient, *, max_concurrent: int) -> None:
        self._text = text
        self._verifier = verifier
        self._max_concurrent = max_concurrent
        self._num_running = 0

    async def generate(
        self, request: AnswerRequest, request_id: str, timeout_seconds: float
    ) -> AsyncGenerator[AnswerEvent]:
        """Started, deltas, Finished. Raises from the error tree; closing the iterator early aborts the generation."""
        with self._admitted():
            info = await self._known(request.model)
            sampling = resolve_sampling(request)
            # Tokenizing a long prompt takes longer than a step; other streams go on meanwhile.
            prompt = await asyncio.to_thread(self._text.encode_prompt, request.prompt)
            validate_prompt(prompt, info.model)
            generation = generation_request(request, request_id, prompt, sampling)
            detokenizer = IncrementalDetokenizer(self._text)
            async with contextlib.aclosing(self._verifier.generate(generation, timeout_seconds)) as events:
                async for event in events:
                    match event:
                        case GenerationStarted():
                            yield AnswerStarted(request_id, info.model.name, event.seed, prompt)
                        case TokenRun():
                            yield AnswerDelta(detokenizer.push(event.token_ids), event.token_ids, event.provenance)
                        case GenerationFinished():
                            yield _finished(event, detokenizer.flush())
                            return
            raise SequenceFault(f"the verifier ended request {request_id} without saying why")

    async def tokenize(self, model: str, text: str) -> TokenIds:
        """Text as it stands, to ids."""
        await self._known(model)
        return await asyncio.to_thread(self._text.encode, text)

    async def detokenize(self, model: str, token_ids: TokenIds) -> str:
        """Ids to text, special tokens left out. Raises InvalidRequest for ids outside of the vocabulary."""
        info = await self._known(model)
        validate_vocabulary("token_ids", token_ids, info.model)
        return await asyncio.to_thread(self._text.decode, list(token_ids))

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
    def _admitted(self) -> Iterator[None]:
        if self._num_running >= self._max_concurrent:
            raise Unavailable(f"{self._num_running} answers are in flight, as many as this gateway takes")
        self._num_running += 1
        try:
            yield
        finally:
            self._num_running -= 1


def check_tokenizer(text: TextModel, info: VerifierInfo) -> None:
    """Raises ConfigurationError where the gateway would read the verifier's ids with another model's tokenizer."""
    if text.vocabulary_size != info.model.usable_vocabulary_tokens:
        raise ConfigurationError(
            f"the gateway's tokenizer has {text.vocabulary_size} tokens, the verifier's model {info.model.name} "
            f"{info.model.usable_vocabulary_tokens}; set --tokenizer to the verifier's target"
        )


def _finished(event: GenerationFinished, rest: str) -> AnswerFinished:
    return AnswerFinished(
        reason=event.reason,
        text=rest,
        num_prompt_tokens=event.num_prompt_tokens,
        num_generated_tokens=event.num_generated_tokens,
        num_cached_prompt_tokens=event.num_cached_prompt_tokens,
        speculation=event.speculation,
    )
