"""Calls told from text, however the answer is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tools import CallParser
from gateway.tools.forms import HERMES, LLAMA_JSON, CallForm, form_of
from saguaro.tools import ToolCallDelta, joined_calls
from tests.unit.gateway.templates import HERMES_TEMPLATE, LLAMA_TEMPLATE

Call = tuple[str, Any]  # name, arguments

ROME = '{"city": "Röm \\" } </x>", "days": [1, {"a": "]"}]}'
CASES: dict[str, tuple[CallForm, str, str, list[Call]]] = {
    "one call": (
        HERMES,
        f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>',
        "",
        [("weather", ROME)],
    ),
    "text, then two calls": (
        HERMES,
        'I look.\n\n<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>\n'
        '<tool_call>{"name":"time","arguments":{"z":"沙漠🌵"}}</tool_call>\n',
        "I look.",
        [("weather", "{}"), ("time", '{"z":"沙漠🌵"}')],
    ),
    "keys the other way round": (
        HERMES,
        '<tool_call>{"arguments": {"z": 1}, "name": "time"}</tool_call>',
        "",
        [("time", '{"z": 1}')],
    ),
    "no arguments": (HERMES, '<tool_call>{"name": "time"}</tool_call> bye', " bye", [("time", "{}")]),
    "an unknown tool is text": (
        HERMES,
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        [],
    ),
    "no JSON is text": (HERMES, "a <tool_call>soon</tool_call> b", "a <tool_call>soon</tool_call> b", []),
    "a name that is none": (HERMES, '<tool_call>{"name": []}</tool_call>', '<tool_call>{"name": []}</tool_call>', []),
    "a marker that does not end": (HERMES, "see <tool_call", "see <tool_call", []),
    "text alone": (HERMES, " 1 < 2 \n", " 1 < 2 \n", []),
    "cut in the head": (HERMES, '<tool_call>\n{"name": "wea', '<tool_call>\n{"name": "wea', []),
    "cut in the arguments": (
        HERMES,
        '<tool_call>\n{"name": "time", "arguments": {"z": "a',
        "",
        [("time", '{"z": "a')],
    ),
    "cut before the closing": (HERMES, '<tool_call>{"arguments": {}, "name": "time"}', "", [("time", "{}")]),
    "llama's": (LLAMA_JSON, f'\n{{"name": "weather", "parameters": {ROME}}}', "", [("weather", ROME)]),
    "llama's, the other way round": (LLAMA_JSON, '{"parameters": {}, "name": "time"}', "", [("time", "{}")]),
    "llama's JSON that is no call": (LLAMA_JSON, '{"a": {"b": "}"}} and so on', '{"a": {"b": "}"}} and so on', []),
    "llama's brace in a text": (LLAMA_JSON, 'so: {"name": "time"}', 'so: {"name": "time"}', []),
}


def parse(form: CallForm, pieces: list[str]) -> tuple[str, list[Call]]:
    parser = CallParser(form, {"weather", "time"})
    parsed = [parser.push(piece) for piece in pieces]
    parsed.append(parser.finish(""))
    deltas = [delta for item in parsed for delta in item.calls]
    assert_well_formed(deltas)
    calls = joined_calls(tuple(deltas))
    return "".join(item.text for item in parsed), [(call.name, call.arguments) for call in calls]


def assert_well_formed(deltas: list[ToolCallDelta]) -> None:
    """Each call begins once, with its name and id; pieces of arguments follow it before the next begins."""
    begun = -1
    for delta in deltas:
        assert delta.index == begun + bool(delta.name)
        assert bool(delta.id) == bool(delta.name)
        begun = delta.index


@pytest.mark.parametrize("case", CASES)
def test_every_two_way_and_every_one_character_split_gives_the_same(case: str) -> None:
    form, text, said, calls = CASES[case]
    for cut in range(len(text) + 1):
        assert parse(form, [text[:cut], text[cut:]]) == (said, calls)
    assert parse(form, list(text)) == (said, calls)


_WORDS = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<tool", "\n", " ", "{", "}", '"', "\\", "🌵", '{"name": "time", "arguments": {}}']
)


@pytest.mark.parametrize("form", [HERMES, LLAMA_JSON], ids=["hermes", "llama"])
@settings(max_examples=300, deadline=None, derandomize=True)
@given(words=st.lists(_WORDS, max_size=12), cuts=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_whatever_comes_the_cuts_change_nothing(form: CallForm, words: list[str], cuts: list[int]) -> None:
    text = "".join(words)
    pieces, position, index = [], 0, 0
    while position < len(text):
        pieces.append(text[position : position + cuts[index % len(cuts)]])
        position += cuts[index % len(cuts)]
        index += 1
    assert parse(form, pieces) == parse(form, [text])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    arguments=st.dictionaries(
        st.text(max_size=4), st.none() | st.text(max_size=8) | st.lists(st.text(max_size=4), max_size=2), max_size=3
    ),
    before=st.text(alphabet=st.characters(exclude_characters="<"), max_size=8),
    indent=st.sampled_from([None, 2]),
)
def test_any_arguments_come_back_as_they_were_written(arguments: dict[str, Any], before: str, indent: int) -> None:
    written = json.dumps(arguments, indent=indent)
    text = f'{before}<tool_call>\n{{"name": "time", "arguments": {written}}}\n</tool_call>'
    assert parse(HERMES, list(text)) == (before.rstrip(), [("time", written)])


def test_arguments_come_while_they_are_written() -> None:
    parser = CallParser(HERMES, {"time"})
    parser.push('<tool_call>\n{"name": "time", "arguments": ')
    first = parser.push('{"z": ').calls
    assert [(delta.name, delta.arguments) for delta in first] == [("time", ""), ("", '{"z": ')]
    assert [delta.arguments for delta in parser.push('"UTC').calls] == ['"UTC']


def test_a_long_answer_that_only_begins_like_a_call_stays_cheap() -> None:
    parser = CallParser(LLAMA_JSON, {"time"})
    for _ in range(20_000):  # to scan it anew each time would take minutes
        parser.push('{"a": ')
    assert len(parser.finish("").text) == 120_000


def test_forms_are_told_by_the_template() -> None:
    assert form_of(HERMES_TEMPLATE) == HERMES
    assert form_of(LLAMA_TEMPLATE) == LLAMA_JSON
    assert form_of("{{ tools }} <tool_call><function=x></tool_call>") is None
    assert form_of("{{ messages }}") is None
