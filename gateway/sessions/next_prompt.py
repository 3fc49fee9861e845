"""The prompt of a session's next turn: the tokens kept, and after them what the chat template adds.

The template renders the whole conversation, the last answer in it as a message. Where that begins with the text that
the last prompt was made of, the prompt's ids are taken as they were; so are the ids of the answer, as far as the
template prints what they spell. Only what follows is tokenized. Usually that is all but nothing of the answer: a
template may trim it, end it with another token than the model did, or it was ended by a stop string that its text no
longer holds.

Some templates write earlier messages differently once there are later ones (they drop the reasoning of old answers, or
print the date). Then all is tokenized anew, as without a session: the verifier still finds the blocks of what is equal.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from gateway.prompts import PromptBound, packed, rendered_within
from gateway.sessions.record import KeptTokens, TextMark
from gateway.text import TextModel
from saguaro.answers import ChatMessage
from saguaro.types import TokenIds


@dataclass(frozen=True, slots=True)
class NextPrompt:
    """`num_reused` of its tokens were kept, 0 where all are new."""

    token_ids: TokenIds
    text: TextMark
    num_reused: int


def packed_next_prompt(
    text: TextModel,
    messages: Sequence[ChatMessage],
    kept: KeptTokens | None,
    tokenizer_fingerprint: str,
    bound: PromptBound,
) -> tuple[array[int], TextMark, int]:
    """`next_prompt`, as it travels between processes."""
    prompt = next_prompt(text, messages, kept, tokenizer_fingerprint, bound)
    bound.check_tokens(len(prompt.token_ids))
    return packed(prompt.token_ids), prompt.text, prompt.num_reused


def next_prompt(
    text: TextModel,
    messages: Sequence[ChatMessage],
    kept: KeptTokens | None,
    tokenizer_fingerprint: str,
    bound: PromptBound | None = None,
) -> NextPrompt:
    """`messages`: all of them, the new ones last. Raises InvalidRequest where the template refuses them, or writes more
    than the bound allows.
    """
    rendered = text.render(messages) if bound is None else rendered_within(text, messages, bound)
    mark = TextMark.of(rendered)
    if kept is None or kept.tokenizer_fingerprint != tokenizer_fingerprint or not kept.prompt_text.begins(rendered):
        return NextPrompt(text.encode_rendered(rendered), mark, num_reused=0)
    following = rendered[kept.prompt_text.num_characters :].encode()
    # An older answer may hold ids that only pad the model's vocabulary; no text has them.
    known = tuple(takewhile(lambda token_id: token_id < text.vocabulary_size, kept.emitted))
    num_answered, num_bytes = reproduced(known, following, text.token_bytes)
    reused = kept.token_ids[: kept.num_prompt_tokens + num_answered]
    rest = text.encode_rendered(following[num_bytes:].decode(), after=reused[-1])
    return NextPrompt(reused + rest, mark, num_reused=len(reused))


def reproduced(emitted: TokenIds, following: bytes, spell: Callable[[int], bytes]) -> tuple[int, int]:
    """The most of `emitted`'s tokens, from the first on, that `following` begins with; their number and their bytes.

    Ends between characters of `following`, which is UTF-8: what is left of it can be tokenized as text.
    """
    num_tokens = num_bytes = position = 0
    for count, token_id in enumerate(emitted, start=1):
        spelled = spell(token_id)
        if not following.startswith(spelled, position):
            break
        position += len(spelled)
        if position == len(following) or following[position] & 0xC0 != 0x80:
            num_tokens, num_bytes = count, position
    return num_tokens, num_bytes
