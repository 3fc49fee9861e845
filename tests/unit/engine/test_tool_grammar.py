"""Random answers under the grammars of calls: every call is one, with arguments of its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.detokenize import IncrementalDetokenizer
from gateway.text import TextModel
from gateway.tools import Calling
from gateway.tools.forms import HERMES, LLAMA_JSON, CallForm
from gateway.tools.grammar import MAX_DEMANDED_CALLS
from saguaro.engine.grammar import ConstraintCompiler
from saguaro.errors import InvalidRequest
from saguaro.tools import Tool, ToolCall, ToolUse, joined_calls
from saguaro.types import SamplingParams
from tests.tiny_models import EOS_ID, SPECIAL_TOKENS, write_tiny_model
from tests.unit.engine.grammar_walks import Walker

WEATHER: dict[str, Any] = {
    "type": "object",
    "description": "start: ::= prose is for the model",
    "properties": {
        "city": {"enum": ['Röm " }', "沙漠"], "description": "Where."},
        "description": {"type": "integer", "minimum": -9, "maximum": 9},
        "more": {"$ref": "#/$defs/more"},
    },
    "required": ["city", "description"],
    "additionalProperties": False,
    "$defs": {"more": {"anyOf": [{"type": "null", "title": "no"}, {"type": "array", "items": {"type": "boolean"}}]}},
}
TOOLS = (Tool("weather", "Größe", json.dumps(WEATHER)), Tool("time"), Tool("set-it", parameters='{"maxProperties": 0}'))
SCHEMAS: dict[str, Any] = {"weather": WEATHER, "time": {"maxProperties": 0}, "set-it": {"maxProperties": 0}}
# The same form with markers that the tiny vocabulary holds as special tokens, as some models have it.
SPECIAL = CallForm(SPECIAL_TOKENS[0], SPECIAL_TOKENS[0], "\n", "arguments", several=True)
FORMS = pytest.mark.parametrize("form", [HERMES, LLAMA_JSON, SPECIAL], ids=["hermes", "llama", "special"])
NUM_WALKS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("grammar") / "model", seed=1)


def answers(folder: Path, form: CallForm, use: ToolUse) -> list[tuple[str, tuple[ToolCall, ...]]]:
    """Text and calls of random answers that the constraint of `use` allows."""
    text = TextModel.from_folder(folder)
    walker = Walker(folder)
    calling = Calling(form, use, {text.token(token_id): token_id for token_id in text.special_ids})
    constraint = calling.constrained(SamplingParams()).constraint
    assert constraint is not None
    compiler = ConstraintCompiler.for_model(folder, num_tokens=walker.vocab, eos_token_ids=(EOS_ID,))
    start = compiler.compile(constraint)
    found = []
    for seed in range(NUM_WALKS):
        detokenizer, parser = IncrementalDetokenizer(calling.decoder(text)), calling.parser()
        pieces = [parser.push(detokenizer.push([token_id])) for token_id in walker.walk(start, seed)]
        pieces.append(parser.finish(detokenizer.flush()))
        calls = joined_calls(tuple(delta for piece in pieces for delta in piece.calls))
        found.append(("".join(piece.text for piece in pieces), calls))
    return found


def assert_valid(calls: tuple[ToolCall, ...]) -> None:
    for call in calls:
        Draft202012Validator(SCHEMAS[call.name]).validate(json.loads(call.arguments))


@FORMS
def test_demanded_calls_are_nothing_but_valid_calls(folder: Path, form: CallForm) -> None:
    found = answers(folder, form, ToolUse(TOOLS, must_call=True))
    for text, calls in found:
        assert text == ""
        assert 1 <= len(calls) <= (MAX_DEMANDED_CALLS if form.several else 1)
        assert_valid(calls)
    assert {call.name for _, calls in found for call in calls} == set(SCHEMAS), "all tools are within reach"


@FORMS
def test_a_named_tool_is_called_once(folder: Path, form: CallForm) -> None:
    for text, calls in answers(folder, form, ToolUse(TOOLS, must_call=True, only="weather")):
        assert (text, [call.name for call in calls]) == ("", ["weather"])
        assert_valid(calls)


@FORMS
def test_strict_tools_leave_text_free_and_keep_what_calls_there_are(folder: Path, form: CallForm) -> None:
    strict = tuple(Tool(tool.name, tool.description, tool.parameters, strict=True) for tool in TOOLS)
    found = answers(folder, form, ToolUse(strict))
    assert any(text for text, _ in found)
    for text, calls in found:
        assert_valid(calls)
        assert not form.opening or form.opening not in text


def test_a_strict_call_after_text_keeps_to_its_schema(folder: Path) -> None:
    strict = (Tool("weather", "", json.dumps(WEATHER), strict=True),)
    constraint = Calling(HERMES, ToolUse(strict), {}).constrained(SamplingParams()).constraint
    assert constraint is not None
    walker = Walker(folder)
    compiler = ConstraintCompiler.for_model(folder, num_tokens=walker.vocab, eos_token_ids=(EOS_ID,))
    state = compiler.compile(constraint)
    state.advance(walker.encode('I < look <tool_call>\n{"name": "weather", "arguments": {"city": "'))
    assert walker.decode(walker.allowed(state)[:1]) == "R", "the enumeration has two values"
    assert len(walker.allowed(state)) == 2
    state.advance(walker.encode('Röm \\" }", "description": 3}}\n</tool_call> and <'))
    assert state.may_end


def test_tools_that_may_be_called_and_are_not_strict_constrain_nothing() -> None:
    assert Calling(HERMES, ToolUse(TOOLS), {}).constrained(SamplingParams()).constraint is None


def calling_of(*tools: Tool) -> Calling:
    return Calling(HERMES, ToolUse(tools, must_call=True), {})


def refusal(compiler: ConstraintCompiler, calling: Calling) -> str:
    """What the client hears when the grammar of the calls is compiled."""
    constraint = calling.constrained(SamplingParams()).constraint
    assert constraint is not None
    with pytest.raises(InvalidRequest) as caught:
        compiler.compile(constraint)
    error = calling.understood(caught.value)
    assert error.field == "chat.tools"
    return str(error)


def test_parameters_nested_too_deeply_are_refused(compiler: ConstraintCompiler) -> None:
    deep = '{"allOf": [' * 450 + "{}" + "]}" * 450
    assert "recursion limit exceeded" in refusal(compiler, calling_of(Tool("deep", parameters=deep)))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {"a": {"not": {"type": "string"}}}}, 'Unimplemented keys: ["not"]'),
        ({"properties": {"a": {"type": "strin"}}}, "Invalid type: strin"),
        ({"properties": {"a": {"$ref": "#/$defs/absent"}}}, "Pointer '/$defs/absent' does not exist"),
    ],
)
def test_a_schema_that_cannot_be_kept_to_is_refused_by_its_tools_name(
    schema: Any, reason: str, compiler: ConstraintCompiler
) -> None:
    calling = calling_of(Tool("time"), Tool("bad-one", parameters=json.dumps(schema)), *TOOLS[:1])
    assert refusal(compiler, calling) == f'the parameters of tool "bad-one" cannot be kept to: {reason}'


def large_tool(name: str, num_properties: int, *, required: bool = True) -> Tool:
    kinds: list[Any] = [
        {"type": "string"},
        {"type": "integer", "minimum": 0},
        {"type": "boolean"},
        {"enum": ["a", "b"]},
    ]
    properties = {f"property_number_{index}": kinds[index % 4] for index in range(num_properties)}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return Tool(name, parameters=json.dumps(schema | ({"required": list(properties)} if required else {})))


@pytest.mark.parametrize("use", [{"must_call": True}, {"single": True}], ids=["demanded", "free"])
@pytest.mark.parametrize("tools", [(40, "tool_{}", 6), (128, "{:a>64}", 6), (128, "{}", 12)], ids=str)
def test_many_tools_with_required_properties_are_served(
    tools: tuple[int, str, int], use: dict[str, bool], compiler: ConstraintCompiler
) -> None:
    count, name, num_properties = tools
    given = tuple(large_tool(name.format(index), num_properties) for index in range(count))
    constraint = Calling(HERMES, ToolUse(given, **use), {}).constrained(SamplingParams()).constraint
    assert constraint is not None
    compiler.compile(constraint)


def test_one_tool_that_is_too_large_is_named_with_the_limit() -> None:
    with pytest.raises(InvalidRequest, match=r'tool "vast" have \d{5} bytes as a JSON schema; at most 32768') as caught:
        calling_of(Tool("time"), large_tool("vast", 700))
    assert caught.value.field == "chat.tools"


def test_tools_that_are_too_large_together_are_refused_with_the_largest_and_the_limit() -> None:
    tools = [large_tool(f"tool_{index}", 60 + index) for index in range(100)]
    with pytest.raises(InvalidRequest, match=r'the 100 tools have \d+ bytes .*"tool_99" the most.*at most 131072'):
        calling_of(*tools)


def test_a_tool_that_cannot_be_called_here_takes_no_room() -> None:
    use = ToolUse((Tool("time"), large_tool("vast", 700)), must_call=True, only="time")
    assert Calling(HERMES, use, {}).constrained(SamplingParams()).constraint is not None
