"""Incremental detokenizing against the tokenizer's own decode of everything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from gateway.detokenize import IncrementalDetokenizer
from gateway.text import TextModel
from tests.unit.gateway.text_folder import byte_fallback_tokenizer, byte_level_tokenizer

BYTE_LEVEL = TextModel(byte_level_tokenizer(), None)
BYTE_FALLBACK = TextModel(byte_fallback_tokenizer(), None)
MODELS = pytest.mark.parametrize("model", [BYTE_LEVEL, BYTE_FALLBACK], ids=["byte-level", "byte-fallback"])
TEXT = "The saguaro 🌵 stands: größer, 沙漠很大, 👩‍🚀 ❤️, and ಠ_ಠ the end."


def deltas(model: TextModel, runs: list[list[int]]) -> tuple[list[str], str]:
    detokenizer = IncrementalDetokenizer(model)
    return [detokenizer.push(run) for run in runs], detokenizer.flush()


def split(token_ids: list[int], cuts: list[int]) -> list[list[int]]:
    """Runs of the sizes in `cuts`, over and over."""
    runs, position, index = [], 0, 0
    while position < len(token_ids):
        runs.append(token_ids[position : position + cuts[index % len(cuts)]])
        position += cuts[index % len(cuts)]
        index += 1
    return runs


@MODELS
@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_deltas_of_any_ids_in_any_runs_concatenate_to_the_decode_of_all_ids(
    model: TextModel, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, model.vocabulary_size - 1), max_size=40))
    cuts = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    pushed, rest = deltas(model, split(ids, cuts))
    assert "".join(pushed) + rest == model.decode(ids)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(text=st.text(max_size=60), cuts=st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_text_comes_back_as_it_went_in_and_no_delta_holds_a_broken_character(text: str, cuts: list[int]) -> None:
    pushed, rest = deltas(BYTE_LEVEL, split(list(BYTE_LEVEL.encode(text)), cuts))
    assert "".join(pushed) + rest == text
    if "\N{REPLACEMENT CHARACTER}" not in text:
        assert not any("\N{REPLACEMENT CHARACTER}" in delta for delta in [*pushed, rest])


def test_every_two_way_split_of_a_text_gives_the_same_text() -> None:
    ids = list(BYTE_LEVEL.encode(TEXT))
    assert len(ids) > len(TEXT) / 3, "a tokenizer with words only would test no split character"
    for cut in range(len(ids) + 1):
        pushed, rest = deltas(BYTE_LEVEL, [ids[:cut], ids[cut:]])
        assert "".join(pushed) + rest == TEXT


def test_an_incomplete_character_is_held_back_and_what_is_before_it_is_not() -> None:
    ids = list(BYTE_LEVEL.encode("cat ಠ"))
    last_character = len("ಠ".encode())
    detokenizer = IncrementalDetokenizer(BYTE_LEVEL)
    assert detokenizer.push(ids[:-1]) == "cat ", f"the last of {last_character} bytes is missing"
    assert detokenizer.push(ids[-1:]) == "ಠ"
    assert detokenizer.flush() == ""


def test_an_incomplete_character_at_the_end_is_flushed_as_the_tokenizer_prints_it() -> None:
    ids = list(BYTE_LEVEL.encode("cat ಠ"))[:-1]
    pushed, rest = deltas(BYTE_LEVEL, [ids])
    assert pushed == ["cat "]
    assert rest == "\N{REPLACEMENT CHARACTER}"


def test_special_tokens_print_nothing_and_part_no_character() -> None:
    first, second = BYTE_LEVEL.encode("ಠ")[:2], BYTE_LEVEL.encode("ಠ")[2:]
    pushed, rest = deltas(BYTE_LEVEL, [[0, *first], [1], [*second, 1]])
    assert "".join(pushed) + rest == "ಠ"


def test_a_byte_that_spoils_its_run_spoils_it_before_anything_was_given_out() -> None:
    def byte(value: int) -> int:
        return BYTE_FALLBACK_IDS[f"<0x{value:02X}>"]

    ids = [BYTE_FALLBACK_IDS["▁the"], *map(byte, "🌵".encode()), byte(0xFF), BYTE_FALLBACK_IDS["s"]]
    pushed, rest = deltas(BYTE_FALLBACK, [[token_id] for token_id in ids])
    assert pushed[0] == "the"
    assert "".join(pushed) + rest == BYTE_FALLBACK.decode(ids)


def test_a_space_at_the_very_start_is_dropped_and_later_ones_stay() -> None:
    space, the = BYTE_FALLBACK_IDS["▁"], BYTE_FALLBACK_IDS["▁the"]
    pushed, rest = deltas(BYTE_FALLBACK, [[the], [space], [the], [the]])
    assert "".join(pushed) + rest == "the  the the" == BYTE_FALLBACK.decode([the, space, the, the])


class Counting:
    """A model's decoder that counts the ids it is given."""

    def __init__(self, model: TextModel) -> None:
        self.special_ids = model.special_ids
        self.token, self.token_bytes, self._model = model.token, model.token_bytes, model
        self.num_decoded = 0

    def decode(self, token_ids: list[int]) -> str:
        self.num_decoded += len(token_ids)
        return self._model.decode(token_ids)


@MODELS
@pytest.mark.parametrize("run_length", [1, 7, 3000])
@pytest.mark.parametrize("data", [b"\x80", b"\xe0", b"\xf0\x9f", b"\xff", "\ufffd".encode()], ids=repr)
def test_runs_of_bytes_that_are_no_characters_cost_as_much_a_token_as_others(
    model: TextModel, data: bytes, run_length: int
) -> None:
    by_bytes = {model.token_bytes(token_id): token_id for token_id in range(model.vocabulary_size)}
    ids = [by_bytes[bytes([byte])] for byte in data] * (3000 // len(data))
    decoder = Counting(model)
    detokenizer = IncrementalDetokenizer(decoder)
    given = "".join([detokenizer.push(run) for run in split(ids, [run_length])])
    assert given + detokenizer.flush() == model.decode(ids)
    assert decoder.num_decoded <= 4 * len(ids)


def test_bytes_that_no_later_byte_can_make_a_character_are_given_out_as_they_come() -> None:
    lone = next(
        token_id for token_id in range(BYTE_LEVEL.vocabulary_size) if BYTE_LEVEL.token_bytes(token_id) == b"\x80"
    )
    pushed, rest = deltas(BYTE_LEVEL, [[lone]] * 5)
    assert (pushed, rest) == (["\N{REPLACEMENT CHARACTER}"] * 5, "")


def _ids(tokenizer: Tokenizer) -> dict[str, int]:
    return dict(tokenizer.get_vocab(with_added_tokens=True))


BYTE_FALLBACK_IDS = _ids(byte_fallback_tokenizer())
