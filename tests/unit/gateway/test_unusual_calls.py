"""Calls as models write them where they do not keep to the form, and thoughts, in which nothing is called."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tools import Calling, CallParser
from gateway.tools.forms import HERMES, LLAMA_JSON, CallForm, form_of
from gateway.tools.json_value import as_far_as_written
from saguaro.tools import Tool, ToolUse, joined_calls
from tests.unit.gateway.templates import HERMES_TEMPLATE
from tests.unit.gateway.test_call_parser import Call, parse

MARKED = '{"z": "say </tool_call> and <tool_call>"}'
TIME = '<tool_call>{"name": "time", "arguments": {}}</tool_call>'
CASES: dict[str, tuple[CallForm, str, str, list[Call]]] = {
    "markers in an argument, arguments first": (
        HERMES,
        f'<tool_call>\n{{"arguments": {MARKED}, "name": "time"}}\n</tool_call>{TIME} bye',
        " bye",
        [("time", MARKED), ("time", "{}")],
    ),
    "markers in an argument, name first": (
        HERMES,
        f'<tool_call>\n{{"name": "time", "arguments": {MARKED}}}\n</tool_call>{TIME}',
        "",
        [("time", MARKED), ("time", "{}")],
    ),
    "a call that is no JSON before one that is": (
        HERMES,
        f'<tool_call>{{"name": "tim</tool_call>\n{TIME}',
        '<tool_call>{"name": "tim</tool_call>',
        [("time", "{}")],
    ),
    "parameters for arguments": (
        HERMES,
        '<tool_call>{"name": "time", "parameters": {"z": 1}}</tool_call>',
        "",
        [("time", '{"z": 1}')],
    ),
    "parameters for arguments, first": (
        HERMES,
        '<tool_call>{"parameters": {"z": 1}, "name": "time"}</tool_call>',
        "",
        [("time", '{"z": 1}')],
    ),
    "llama's with arguments": (LLAMA_JSON, '{"name": "time", "arguments": {"z": 1}}', "", [("time", '{"z": 1}')]),
    "arguments as text": (
        HERMES,
        '<tool_call>{"name": "time", "arguments": "{\\"z\\": 1}"}</tool_call>',
        "",
        [("time", '{"z": 1}')],
    ),
    "arguments as text that is no object": (
        HERMES,
        '<tool_call>{"name": "time", "arguments": "now"}</tool_call>',
        '<tool_call>{"name": "time", "arguments": "now"}</tool_call>',
        [],
    ),
    "arguments null": (HERMES, '<tool_call>{"name": "time", "arguments": null}</tool_call>', "", [("time", "{}")]),
    "a thought that speaks of calls": (
        HERMES,
        f"<think>\nI could {TIME}, but.\n</think>\n\n{TIME}",
        f"<think>\nI could {TIME}, but.\n</think>",
        [("time", "{}")],
    ),
    "a thought after a call": (
        HERMES,
        f"{TIME}\n<think>again? {TIME}</think>\n{TIME}",
        f"\n<think>again? {TIME}</think>",
        [("time", "{}"), ("time", "{}")],
    ),
    "a thought that does not end": (HERMES, f"<think>{TIME}</thin", f"<think>{TIME}</thin", []),
    "what only begins like a thought": (HERMES, f"<thing>{TIME}", "<thing>", [("time", "{}")]),
    "a thought spoken of": (HERMES, f"Use <think>. {TIME}", "Use <think>.", [("time", "{}")]),
    "llama's after a thought": (
        LLAMA_JSON,
        '<think>{"name": "time"}</think>\n{"name": "time", "parameters": {}}',
        '<think>{"name": "time"}</think>',
        [("time", "{}")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_two_way_and_every_one_character_split_gives_the_same(case: str) -> None:
    form, text, said, calls = CASES[case]
    for cut in range(len(text) + 1):
        assert parse(form, [text[:cut], text[cut:]]) == (said, calls)
    assert parse(form, list(text)) == (said, calls)


_WORDS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<think>", "</think>", "<t", " ", "{", "}", '"', "\\", ","),
        *(TIME, '{"arguments": {}, "name": "time"}', '{"name": "time", "parameters": {"a": "</tool_call>"}}'),
    ]
)


@pytest.mark.parametrize("form", [HERMES, LLAMA_JSON], ids=["hermes", "llama"])
@settings(max_examples=400, deadline=None, derandomize=True)
@given(words=st.lists(_WORDS, max_size=10), size=st.integers(1, 9))
def test_whatever_comes_the_cuts_change_nothing(form: CallForm, words: list[str], size: int) -> None:
    text = "".join(words)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert parse(form, pieces) == parse(form, [text])


def test_a_template_may_begin_the_answer_inside_of_a_thought() -> None:
    plain = "{{- '<|im_start|>assistant\\n' }}"
    open_thought = plain.replace("assistant\\n", "assistant\\n<think>\\n")
    no_thought = plain.replace("assistant\\n", "assistant\\n<think>\\n\\n</think>\\n")
    assert plain in HERMES_TEMPLATE
    assert form_of(HERMES_TEMPLATE.replace(plain, open_thought)) == replace(HERMES, begins_in_thought=True)
    assert form_of(HERMES_TEMPLATE.replace(plain, no_thought)) == HERMES


def test_then_nothing_is_called_until_the_thought_ends_unless_a_call_is_demanded() -> None:
    thinking, tools = replace(HERMES, begins_in_thought=True), (Tool("time"),)
    free = Calling(thinking, ToolUse(tools), {}).parser()
    parsed = free.finish(f"shall I {TIME}?</think>\n{TIME}")
    assert (parsed.text, len(joined_calls(tuple(parsed.calls)))) == (f"shall I {TIME}?</think>", 1)
    demanded = Calling(thinking, ToolUse(tools, must_call=True), {}).parser()
    assert len(joined_calls(tuple(demanded.finish(TIME).calls))) == 1


def test_thoughts_come_while_they_are_thought() -> None:
    parser = CallParser(HERMES, {"time"})
    assert parser.push("<think>first").text == "<think>first"
    assert parser.push(" this <tool_call>").text == " this <tool_call>"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(written=st.dictionaries(st.text(max_size=3), _VALUES, max_size=4), cut=st.integers(0, 200))
def test_of_cut_arguments_the_whole_values_are_read(written: dict[str, Any], cut: int) -> None:
    text = json.dumps(written)
    read = as_far_as_written(text[:cut])
    if cut >= len(text):
        assert read == written
    for key in list(read)[:-1]:  # the last may be cut itself
        assert read[key] == written[key]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"z": "a', {"z": "a"}),
        ('{"z": "a", "b', {"z": "a"}),
        ('{"z": "a", "b": tru', {"z": "a"}),
        ('{"z": [1, 2', {"z": [1, 2]}),
        ('{"z": [1, {"a": "\\', {"z": [1, {}]}),
        ('{"z": "\\u00', {}),
        ("{", {}),
        ("{broken}", {}),
        ('{"a": 1}} and so on', {}),
    ],
)
def test_what_is_read_of_cut_arguments(text: str, read: dict[str, Any]) -> None:
    assert as_far_as_written(text) == read


@pytest.mark.parametrize("piece", ["{", "[", '{"a":', '"', ",", "[1,"])
def test_reading_cut_arguments_takes_time_that_their_length_bounds(piece: str) -> None:
    started = time.process_time()
    as_far_as_written("{" + piece * 100_000)
    assert time.process_time() - started < 3
