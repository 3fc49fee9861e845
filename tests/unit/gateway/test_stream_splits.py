"""The text of an answer over every way to cut its tokens into runs: detokenizing and stop strings together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.choice import Choice
from gateway.text import TextModel
from saguaro.answers import AnswerRequest, TextPrompt
from saguaro.types import (
    FinishReason,
    GenerationFinished,
    SamplingParams,
    SpeculationReport,
    TokenIds,
    TokenProvenance,
    TokenRun,
)
from tests.unit.gateway.text_folder import byte_fallback_tokenizer, byte_level_tokenizer

MODELS = {
    "byte-level": TextModel(byte_level_tokenizer(), None),
    "byte-fallback": TextModel(byte_fallback_tokenizer(), None),
}
TEXTS = {
    "emoji": "a👩\u200d🚀b",
    "flag": "🇩🇪 🌵",
    "CJK": "沙漠 is 很大",
    "combining": "e\u0301 a\u0308!",
    "conjunct": "क्षि x",
    "keycap": "1\ufe0f\u20e3 ❤\ufe0f",
    "words": " the cactus s",
}
NUM_TOKENS = 9  # of which every cut is tried: 256; it may well fall into a character
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CASES = pytest.mark.parametrize(("model", "text"), list(itertools.product(MODELS, TEXTS)))


def every_cut(token_ids: TokenIds) -> Iterator[list[TokenIds]]:
    """All 2 ** (n - 1) ways to make runs of the ids."""
    places = range(1, len(token_ids))
    for cuts in itertools.chain.from_iterable(itertools.combinations(places, size) for size in range(len(token_ids))):
        bounds = [0, *cuts, len(token_ids)]
        yield [token_ids[start:end] for start, end in itertools.pairwise(bounds)]


def answered(
    model: TextModel, runs: list[TokenIds], *stop: str, min_tokens: int = 0
) -> tuple[list[str], TokenIds, list[int]]:
    """The pieces of text, the last being what was held back, the ids, and the text lengths."""
    request = AnswerRequest(TextPrompt(""), SamplingParams(min_tokens=min_tokens), stop=stop, include_text_lengths=True)
    choice = Choice(model, request, 0)
    pieces, ids, lengths = [], list[int](), list[int]()
    for run in runs:
        delta = choice.take(TokenRun(run, (TokenProvenance.PLAIN,) * len(run)))
        assert sum(delta.text_lengths) == len(delta.text)
        assert len(delta.text_lengths) == len(delta.token_ids)
        pieces.append(delta.text)
        ids += delta.token_ids
        lengths += delta.text_lengths
        if choice.is_stopped:
            break
    finished = choice.finish(GenerationFinished(FinishReason.LENGTH, 1, len(ids), 0, SpeculationReport(False)))
    assert finished.num_generated_tokens == len(ids)
    return [*pieces, finished.text], tuple(ids), lengths


@CASES
def test_every_cut_gives_the_decode_of_all_ids_in_whole_characters(model: str, text: str) -> None:
    decoder = MODELS[model]
    ids = decoder.encode(TEXTS[text])[:NUM_TOKENS]
    whole = decoder.decode(list(ids))
    lengths = set()
    for runs in every_cut(ids):
        pieces, seen, counted = answered(decoder, runs)
        assert ("".join(pieces), seen) == (whole, ids)
        assert not any(REPLACEMENT in piece for piece in pieces[:-1])
        lengths.add(tuple(counted))
    assert len(lengths) == 1, "what came with each token does not depend on the runs"


@CASES
def test_every_cut_stops_at_the_same_character_and_the_same_token(model: str, text: str) -> None:
    decoder = MODELS[model]
    ids = whole_characters(decoder, decoder.encode(TEXTS[text]))
    whole = decoder.decode(list(ids))
    middle = len(whole) // 2
    for stop in (whole[middle : middle + 2], whole[-1]):
        ends = set()
        for runs in every_cut(ids):
            pieces, seen, _ = answered(decoder, runs, stop)
            assert "".join(pieces) == whole[: whole.index(stop)]
            ends.add(seen)
        (end,) = ends
        assert stop in decoder.decode(list(end)), "its token completes the string"
        if model == "byte-level":  # elsewhere a later byte can spoil earlier ones, so the end is where that is over
            assert stop not in decoder.decode(list(end[:-1])), "no token before did"


def whole_characters(decoder: TextModel, ids: TokenIds) -> TokenIds:
    """The longest beginning of at most NUM_TOKENS ids that ends with a character."""
    ends = range(min(len(ids), NUM_TOKENS), 0, -1)
    return next(ids[:end] for end in ends if REPLACEMENT not in decoder.decode(list(ids[:end])))


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=80, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_ids_and_any_stop_strings_end_alike_whatever_the_runs(model: str, data: st.DataObject) -> None:
    decoder = MODELS[model]
    ids = tuple(data.draw(st.lists(st.integers(0, decoder.vocabulary_size - 1), min_size=1, max_size=24)))
    whole = decoder.decode(list(ids))
    within = st.tuples(st.integers(0, len(whole)), st.integers(1, 4)).map(lambda at: whole[at[0] : at[0] + at[1]])
    stop = data.draw(st.lists(within.filter(bool) | st.just("zz"), max_size=3))
    min_tokens = data.draw(st.integers(0, 6))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(ids)), max_size=8)) | {0, len(ids)})
    runs = [ids[start:end] for start, end in itertools.pairwise(cuts)]
    one_by_one = answered(decoder, [(token_id,) for token_id in ids], *stop, min_tokens=min_tokens)
    pieces, seen, lengths = answered(decoder, runs, *stop, min_tokens=min_tokens)
    assert ("".join(pieces), seen, lengths) == ("".join(one_by_one[0]), *one_by_one[1:])
    assert whole.startswith("".join(pieces))


END = next(iter(MODELS["byte-level"].special_ids - {0}))


@pytest.mark.parametrize(
    ("stop", "text", "is_reached"),
    [
        ("<|im_end|>", "in the desert", True),
        (" desert<|im_end|>", "in the", True),
        ("<|im_end|> stands", "in the desert", True),
        ("<|im_start|>", "in the desert stands", False),
        ("desert stands", "in the ", True),  # the special token between them prints nothing
    ],
)
def test_a_stop_string_may_name_special_tokens_and_every_cut_stops_at_the_same_one(
    stop: str, text: str, is_reached: bool
) -> None:
    decoder = MODELS["byte-level"]
    before, after = decoder.encode("in the desert"), decoder.encode(" stands")
    ends = set()
    for runs in every_cut((*before, END, *after)):
        pieces, seen, _ = answered(decoder, runs, stop)
        assert "".join(pieces) == text
        ends.add(seen)
    (end,) = ends
    assert end == ((*before, END, *after) if not is_reached or "stands" in stop else (*before, END))


def test_a_special_token_among_the_first_tokens_does_not_stop() -> None:
    decoder = MODELS["byte-level"]
    ids = (END, *decoder.encode("the"), END, 5)
    pieces, seen, _ = answered(decoder, [ids], "<|im_end|>", min_tokens=1)
    assert ("".join(pieces), seen) == ("the", ids[:-1])


def test_text_that_spells_a_special_token_stops_too() -> None:
    decoder = MODELS["byte-level"]
    ids = tuple(token_id for letter in "the<|im_end|>!" for token_id in decoder.encode(letter))
    pieces, seen, _ = answered(decoder, [ids], "<|im_end|>")
    assert ("".join(pieces), seen) == ("the", ids[:-1])
