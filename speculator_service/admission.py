"""What a verifier may say of a sequence: the bounds of opens and commits, judged before anything is made of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from saguaro.errors import InvalidRequest
from saguaro.types import CommitRound, JustInTime, OpenSequence
from saguaro.validation import MAX_STOP_TOKENS, validate_sampling

MOST_SPECULATION = 64  # tokens; what any speculator could be set to draft
_MOST_END_TOKENS = 1024  # stop tokens of a request, and those that end every answer of the model
_MOST_PADDING = 4096  # rows by which target and draft may be padded differently


def check_open(opened: OpenSequence, vocab_size: int) -> None:
    """Raises InvalidRequest for a sequence that could not be drafted by its own word.

    Its constraint is judged where it is compiled. Ids that only the target's embeddings have, for padding, are fine.
    """
    sampling = opened.sampling
    num_tokens, num_prompt, num_ends = len(opened.token_ids), opened.num_prompt_tokens, len(sampling.stop_token_ids)
    if not num_tokens:
        raise InvalidRequest("token_ids", "it has no tokens; at least 1 must be there")
    if num_prompt > num_tokens:
        raise InvalidRequest("num_prompt_tokens", f"num_prompt_tokens is {num_prompt}; it has {num_tokens} tokens")
    if num_ends > _MOST_END_TOKENS:
        raise InvalidRequest("stop_token_ids", f"it has {num_ends} stop tokens; at most {_MOST_END_TOKENS} are taken")
    # The verifier adds the model's end tokens to those of a request, for which alone the usual bound holds.
    validate_sampling(replace(sampling, constraint=None, stop_token_ids=sampling.stop_token_ids[:MAX_STOP_TOKENS]))
    _check_ids(opened.token_ids, vocab_size)
    _check_ids(sampling.stop_token_ids, vocab_size)
    _check_ids((token for token, _ in sampling.logit_bias), vocab_size)


def check_commit(commit: CommitRound, vocab_size: int) -> None:
    """Raises InvalidRequest for ids that no target can have, or more of them than any speculation has."""
    speculation = () if isinstance(commit.speculation, JustInTime) else commit.speculation
    if len(speculation) > MOST_SPECULATION:
        raise InvalidRequest(
            "explicit.token_ids",
            f"{len(speculation)} tokens are verified at once; at most {MOST_SPECULATION} may be",
        )
    _check_ids((commit.outcome.bonus_token, *speculation), vocab_size)


def _check_ids(token_ids: Iterable[int], vocab_size: int) -> None:
    largest = max(token_ids, default=0)
    if largest >= vocab_size + _MOST_PADDING:
        raise InvalidRequest("token_ids", f"token {largest} is outside the vocabulary of {vocab_size}")
