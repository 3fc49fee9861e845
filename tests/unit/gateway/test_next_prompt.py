"""The next turn's prompt: kept ids where the template repeats what it said, and in any case what the template says."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from gateway.chat_template import ChatTemplate
from gateway.sessions.next_prompt import NextPrompt, next_prompt, reproduced
from gateway.sessions.record import KeptTokens, Session, TextMark
from gateway.text import TextModel
from saguaro.answers import ChatMessage
from saguaro.types import TokenIds
from tests.unit.gateway.text_folder import EOS_ID, TEMPLATE, byte_level_tokenizer

FINGERPRINT = "f" * 64
HELLO = ChatMessage("user", "The saguaro stands")
NEXT = ChatMessage("user", "größer? 🌵")
# Old answers lose what stands before </think>, as those of reasoning models do.
FORGETFUL = """{% for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'].split('</think>')[-1] + '<|im_end|>\n' }}
{%- endfor %}{{ '<|im_start|>assistant\n' }}"""
COUNTING = "{{ messages | length }} messages: " + TEMPLATE
TRIMMING = TEMPLATE.replace("message['content'] +", "message['content'] | trim +")
OTHER_END = TEMPLATE.replace("eos_token", "'<|other|>'")


@lru_cache(maxsize=8)
def model(template: str = TEMPLATE) -> TextModel:
    return TextModel(byte_level_tokenizer(), ChatTemplate(template, {"eos_token": "<|im_end|>"}))


def kept_after(text: TextModel, messages: list[ChatMessage], emitted: TokenIds) -> KeptTokens:
    rendered = text.render(messages)
    prompt = text.encode_rendered(rendered)
    return KeptTokens(FINGERPRINT, prompt + emitted, len(prompt), TextMark.of(rendered))


def second_turn(text: TextModel, said: str, emitted: TokenIds) -> tuple[KeptTokens, NextPrompt]:
    """`said` is what the client saw of the tokens `emitted`."""
    kept = kept_after(text, [HELLO], emitted)
    return kept, next_prompt(text, [HELLO, ChatMessage("assistant", said), NEXT], kept, FINGERPRINT)


def spelled(text: TextModel, token_ids: TokenIds) -> bytes:
    return b"".join(map(text.token_bytes, token_ids))


def test_an_answer_that_ended_itself_is_kept_whole_and_only_what_follows_is_tokenized() -> None:
    text = model()
    kept, turn = second_turn(text, "in the desert", (*text.encode("in the desert"), EOS_ID))
    assert turn.num_reused == len(kept.token_ids)
    rest = "\n<|im_start|>user\ngrößer? 🌵<|im_end|>\n<|im_start|>assistant\n"
    assert turn.token_ids == kept.token_ids + text.encode(rest)


def test_ids_that_the_tokenizer_would_not_make_of_the_same_text_are_kept_all_the_same() -> None:
    text = model()
    letters = tuple(token for letter in "the desert" for token in text.encode(letter))
    assert letters != text.encode("the desert")
    kept, turn = second_turn(text, "the desert", (*letters, EOS_ID))
    assert turn.token_ids[: len(kept.token_ids)] == kept.token_ids


def test_an_answer_that_was_cut_gets_the_template_s_end() -> None:
    text = model()
    kept, turn = second_turn(text, "in the", text.encode("in the"))
    assert turn.num_reused == len(kept.token_ids)
    assert turn.token_ids[turn.num_reused] == EOS_ID


def test_of_an_answer_that_a_stop_string_ended_the_tokens_that_its_text_holds_are_kept() -> None:
    text = model()
    before, stop = text.encode("in the"), text.encode(" desert!")
    kept, turn = second_turn(text, "in the", before + stop)
    assert turn.token_ids[: turn.num_reused] == kept.token_ids[: -len(stop)]
    assert spelled(text, turn.token_ids).startswith(text.render([HELLO]).encode() + b"in the<|im_end|>")


@pytest.mark.parametrize(
    ("template", "said", "num_kept"),
    [(TRIMMING, "in the \n", 6), (TRIMMING, " in", 0), (OTHER_END, "in the", 6)],
    ids=["blanks at the end", "blanks at the beginning", "another end"],
)
def test_what_the_template_writes_otherwise_is_dropped_from_the_end_of_the_kept_ids(
    template: str, said: str, num_kept: int
) -> None:
    text = model(template)
    letters = tuple(token for letter in said for token in text.encode(letter))
    kept, turn = second_turn(text, said, (*letters, EOS_ID))
    assert turn.num_reused == kept.num_prompt_tokens + num_kept
    rendered = text.render([HELLO, ChatMessage("assistant", said), NEXT])
    assert spelled(text, turn.token_ids) == rendered.encode()


def test_a_template_that_drops_the_reasoning_of_old_answers_keeps_the_prompt_before_it() -> None:
    text = model(FORGETFUL)
    kept, turn = second_turn(text, "in</think>the", (*text.encode("in</think>the"), EOS_ID))
    assert turn.num_reused == kept.num_prompt_tokens
    assert b"the<|im_end|>" in spelled(text, turn.token_ids)
    assert b"</think>" not in spelled(text, turn.token_ids)


def test_a_template_that_rewrites_the_prompt_has_all_tokenized_anew() -> None:
    text = model(COUNTING)
    _, turn = second_turn(text, "in", (*text.encode("in"), EOS_ID))
    assert turn.num_reused == 0
    assert turn.token_ids == text.encode_rendered(text.render([HELLO, ChatMessage("assistant", "in"), NEXT]))


def test_ids_of_another_tokenizer_are_not_used() -> None:
    text = model()
    kept = kept_after(text, [HELLO], (EOS_ID,))
    messages = [HELLO, ChatMessage("assistant", ""), NEXT]
    assert next_prompt(text, messages, kept, FINGERPRINT).num_reused == len(kept.token_ids)
    turn = next_prompt(text, messages, kept, "0" * 64)
    assert (turn.num_reused, turn.token_ids) == (0, text.encode_rendered(text.render(messages)))


def test_what_follows_a_special_token_is_tokenized_as_in_the_whole_text() -> None:
    words = {"<unk>": 0, "▁": 1, "s": 2, "▁s": 3, "\n": 4}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[("▁", "s")], unk_token="<unk>"))
    tokenizer.decoder = decoders.Metaspace()
    # A blank before a text's first word, and an end that swallows the line break behind it, as Phi's does.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.add_special_tokens([AddedToken("</s>", special=True, rstrip=True)])
    text, end = TextModel(tokenizer, None), tokenizer.token_to_id("</s>")
    assert text.encode_rendered("s</s>\ns") == (3, end, 2)
    assert text.encode_rendered("\ns", after=end) == (2,)
    assert text.encode_rendered("s") == (3,)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(st.lists(st.integers(2, 419), max_size=12), min_size=1, max_size=3),
    st.lists(st.text(max_size=8), min_size=4, max_size=4),
    st.sampled_from([TEMPLATE, TRIMMING, OTHER_END, FORGETFUL, COUNTING]),
    st.booleans(),
)
def test_whatever_was_emitted_a_turn_s_prompt_spells_what_the_template_says_and_begins_with_the_ids_it_reuses(
    answers: list[list[int]], asked: list[str], template: str, ends_itself: bool
) -> None:
    text = model(template)
    messages: list[ChatMessage] = []
    kept = None
    for answer, question in zip(answers, asked, strict=False):
        messages.append(ChatMessage("user", question))
        turn = next_prompt(text, messages, kept, FINGERPRINT)
        assert spelled(text, turn.token_ids) == text.render(messages).encode()
        assert kept is None or turn.token_ids[: turn.num_reused] == kept.token_ids[: turn.num_reused]
        emitted = (*answer, EOS_ID) if ends_itself else tuple(answer)
        kept = KeptTokens(FINGERPRINT, turn.token_ids + emitted, len(turn.token_ids), turn.text)
        messages.append(ChatMessage("assistant", text.decode(answer)))


def test_ids_are_kept_up_to_a_whole_character() -> None:
    spelling = [b"a", b"\xc3", b"\xb6", b"b"]
    following = "aöc".encode()
    assert reproduced((0, 1, 2, 3), following, spelling.__getitem__) == (3, 3)
    assert reproduced((0, 1), following, spelling.__getitem__) == (1, 1)
    assert reproduced((3,), following, spelling.__getitem__) == (0, 0)
    assert reproduced((), following, spelling.__getitem__) == (0, 0)


def test_a_session_survives_its_bytes() -> None:
    kept = KeptTokens(FINGERPRINT, (0, 1, 2**32 - 1), 2, TextMark.of("größer 🌵"))
    whole = Session("m", 12.5, (HELLO, NEXT), 3, False, kept)
    for session in (whole, Session("m", 12.5, ())):
        assert Session.from_bytes(session.to_bytes()) == session
    with pytest.raises(ValueError, match="layout is number 9"):
        Session.from_bytes(whole.to_bytes().replace(b'"layout":1', b'"layout":9'))


def test_a_mark_knows_the_texts_that_begin_with_its_own() -> None:
    mark = TextMark.of("größ")
    assert mark.begins("größ")
    assert mark.begins("größer")
    assert not mark.begins("gros")
    assert not mark.begins("grö")


def test_an_answer_with_an_id_beyond_the_vocabulary_is_tokenized_from_there_on() -> None:
    text = model()
    before = text.encode("in the ")
    kept, turn = second_turn(
        text, "in the desert", (*before, text.vocabulary_size + 12, *text.encode("desert"), EOS_ID)
    )
    assert turn.num_reused == kept.num_prompt_tokens + len(before)
    assert max(turn.token_ids) < text.vocabulary_size
    assert (
        spelled(text, turn.token_ids) == text.render([HELLO, ChatMessage("assistant", "in the desert"), NEXT]).encode()
    )
