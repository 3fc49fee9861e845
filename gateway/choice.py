"""One choice of an answer: the verifier's runs of tokens become text, up to where the answer ends."""

from __future__ import annotations

import codecs

from gateway.detokenize import Decoder, IncrementalDetokenizer
from gateway.stop_strings import StopStrings
from gateway.tools import Calling, Parsed
from saguaro.answers import AnswerDelta, AnswerFinished, AnswerRequest
from saguaro.types import FinishReason, GenerationFinished, TokenRun


class Choice:
    """The text side of one generation. Ids, text, logprobs and usage all end with the token that ends the answer.

    A stop string ends it with the token that completes the string (the text ends before the string), and only if that
    token is not among the first min_tokens.
    """

    def __init__(self, decoder: Decoder, request: AnswerRequest, index: int, calling: Calling | None = None) -> None:
        self._decoder = decoder if calling is None else calling.decoder(decoder)
        self._detokenizer = IncrementalDetokenizer(self._decoder)
        self._calls = None if calling is None else calling.parser()
        specials = map(self._decoder.token, self._decoder.special_ids) if request.stop else ()
        self._stop = StopStrings(request.stop, specials)
        self._tells_lengths = request.include_text_lengths and calling is None
        self._tells_offsets = request.logprobs and calling is None
        self._goes_by_token = bool(request.stop) or self._tells_lengths or self._tells_offsets
        self._min_tokens = request.sampling.min_tokens
        self._index = index
        self._num_tokens = 0
        self._num_settled = 0  # characters, what is held back for a stop string among them
        self._num_unsettled = 0  # characters of tokens whose text is not settled, as those whose last is incomplete
        self._unsettled = codecs.getincrementaldecoder("utf-8")("replace")
        self._offsets: list[int] = []  # of the tokens of the run that is taken

    @property
    def is_stopped(self) -> bool:
        """Whether the text has reached a stop string: what the verifier still sends does not count."""
        return self._stop.is_reached

    def take(self, run: TokenRun) -> AnswerDelta:
        """What the run adds to the answer."""
        pieces = self._pieces_of(run) if self._goes_by_token else [self._detokenizer.push(run.token_ids)]
        length = len(pieces) if self._goes_by_token else len(run.token_ids)
        self._num_tokens += length
        text = "".join(pieces)
        parsed = Parsed(text) if self._calls is None else self._calls.push(text)
        return AnswerDelta(
            parsed.text,
            run.token_ids[:length],
            run.provenance[:length],
            run.logprobs[:length],
            choice=self._index,
            tool_calls=tuple(parsed.calls),
            text_lengths=tuple(map(len, pieces)) if self._tells_lengths else (),
            text_offsets=tuple(self._offsets) if self._tells_offsets else (),
        )

    def finish(self, event: GenerationFinished) -> AnswerFinished:
        """The end, whatever brought it. The report covers what the verifier did until it heard of a stop string."""
        text = ""
        if not self.is_stopped:
            text = self._stop.push(self._detokenizer.flush(), may_end=self._num_tokens > self._min_tokens)
            text += self._stop.flush()
        parsed = Parsed(text) if self._calls is None else self._calls.finish(text)
        return AnswerFinished(
            reason=FinishReason.STOP if self.is_stopped else event.reason,
            text=parsed.text,
            num_prompt_tokens=event.num_prompt_tokens,
            num_generated_tokens=self._num_tokens,
            num_cached_prompt_tokens=event.num_cached_prompt_tokens,
            speculation=event.speculation,
            choice=self._index,
            tool_calls=tuple(parsed.calls),
        )

    def _pieces_of(self, run: TokenRun) -> list[str]:
        """Text that came with each token, up to the one that ends the answer: where that is does not depend on how runs
        were cut.
        """
        pieces: list[str] = []
        self._offsets = []
        for number, token in enumerate(run.token_ids, start=self._num_tokens + 1):
            may_end = number > self._min_tokens
            self._offsets.append(self._num_settled + self._num_unsettled)
            if self._stop.knows_special_tokens and token in self._decoder.special_ids:
                pieces.append(self._stop.push_special(self._decoder.token(token), may_end=may_end))
            else:
                settled = self._detokenizer.push((token,))
                self._count(settled, token)
                pieces.append(self._stop.push(settled, may_end=may_end))
            if self.is_stopped:
                break
        return pieces

    def _count(self, settled: str, token: int) -> None:
        """Keeps up with where the next token begins."""
        if settled:
            self._num_settled += len(settled)
            self._num_unsettled = 0
            self._unsettled.reset()
        elif self._tells_offsets and token not in self._decoder.special_ids:
            self._num_unsettled += len(self._unsettled.decode(self._decoder.token_bytes(token)))
