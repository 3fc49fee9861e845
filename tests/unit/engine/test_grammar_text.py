"""Constrained to a regular expression or a grammar, a model writes what it matches."""

from __future__ import annotations

import re
import time

import pytest

from saguaro.engine.grammar import ConstraintCompiler
from saguaro.errors import InvalidRequest, SequenceFault
from saguaro.grammar_text import embedded_schemas
from saguaro.types import Constraint, ConstraintKind
from tests.unit.engine.grammar_walks import Walker

NUM_WALKS = 20

REGEXES = [
    r"yes|no|maybe",
    r"[a-z]{1,12}@[a-z]{1,12}\.(com|org)",
    r"\([0-9]{3}\) [0-9]{3}-[0-9]{4}",
    r"(?i)the answer is [0-9]+\.?",
    r"^anchors say nothing new$",
    r"[^a-zA-Z]{3,9}",
    r"é+ü?😀",
    r"(ab|(cd|ef){2})*",
]

SUM_GBNF = r"""
root ::= product ("+" product)*
product ::= factor ("*" factor)*
factor ::= number | "(" root ")"
number ::= "0" | [1-9] [0-9]*
"""
SUM_LARK = r"""
start: product ("+" product)*
product: factor ("*" factor)*
factor: NUMBER | "(" start ")"
NUMBER: "0" | /[1-9][0-9]*/
"""


@pytest.mark.parametrize("regex", REGEXES)
def test_every_random_answer_matches_the_whole_expression(
    regex: str, compiler: ConstraintCompiler, walker: Walker
) -> None:
    start = compiler.compile(Constraint(ConstraintKind.REGEX, regex))
    for seed in range(NUM_WALKS):
        text = walker.decode(walker.walk(start, seed))
        assert re.fullmatch(regex, text), text


@pytest.mark.parametrize("grammar", [SUM_GBNF, SUM_LARK], ids=["gbnf", "lark"])
def test_every_random_answer_is_a_sentence_of_the_grammar(
    grammar: str, compiler: ConstraintCompiler, walker: Walker
) -> None:
    start = compiler.compile(Constraint(ConstraintKind.GRAMMAR, grammar))
    for seed in range(NUM_WALKS):
        text = walker.decode(walker.walk(start, seed))
        assert re.fullmatch(r"[0-9+*()]+", text)
        compile(text, "answer", "eval")  # Python knows these sentences too: brackets match, no number begins with 0


@pytest.mark.parametrize("text", ["0", "12*(3+4)*5", "((7))"])
@pytest.mark.parametrize("grammar", [SUM_GBNF, SUM_LARK], ids=["gbnf", "lark"])
def test_sentences_of_the_grammar_can_be_written(
    grammar: str, text: str, compiler: ConstraintCompiler, walker: Walker
) -> None:
    state = compiler.compile(Constraint(ConstraintKind.GRAMMAR, grammar))
    state.advance(walker.encode(text))
    assert state.may_end
    assert not state.is_terminated or text == "0"


def test_no_special_token_is_taken_for_its_text(compiler: ConstraintCompiler, walker: Walker) -> None:
    state = compiler.compile(Constraint(ConstraintKind.REGEX, r"[<|a-z_>]{1,20}"))
    assert walker.tokenizer.token_to_id("<|im_start|>") == 1
    assert not {0, 1, 2} & set(walker.allowed(state))
    state.advance(walker.encode("<"))
    assert set(walker.allowed(state)) & {0, 1, 2} == {0, 2}  # the ends, and not the start of a message


ESCAPES = [
    (r'root ::= "caf\u00e9"', "café"),
    (r'root ::= "caf\xe9"', "café"),
    (r'root ::= "\x41\u0042\U00000043"', "ABC"),
    (r'root ::= "\U0001F600"', "😀"),
    (r'root ::= "\ud83d\ude00"', "😀"),
    (r'root ::= "\u0022\u005c\\x\n\""', '"\\\\x\n"'),
    (r'root ::= "\\u0041"', r"\u0041"),
    (r"root ::= [\u00e9-\u00ea]", "é"),
    (r'root ::= [\U0001F600-\U0001F64F] "!"', "😀!"),
    (r"root ::= [\u005d\u002d\u005e]", "-"),
    (r"root ::= [^\u0000-\u001F]", "😀"),
]


@pytest.mark.parametrize(("grammar", "text"), ESCAPES)
def test_gbnf_writes_characters_by_their_number(
    grammar: str, text: str, compiler: ConstraintCompiler, walker: Walker
) -> None:
    state = compiler.compile(Constraint(ConstraintKind.GRAMMAR, grammar))
    state.advance(walker.encode(text))
    assert state.may_end


@pytest.mark.parametrize("grammar", [r"root ::= [\u00e9-\u00ea]", r"root ::= [\u005d\u002d\u005e]"])
def test_a_class_of_characters_by_number_has_no_others(
    grammar: str, compiler: ConstraintCompiler, walker: Walker
) -> None:
    state = compiler.compile(Constraint(ConstraintKind.GRAMMAR, grammar))
    for text in ("è", "u", "0", "\\", "_"):
        with pytest.raises(SequenceFault):
            state.copy().advance(walker.encode(text))


@pytest.mark.parametrize("number", [r"\ud800", r"\U00110000"])
def test_a_number_that_is_no_character_is_refused(number: str, compiler: ConstraintCompiler) -> None:
    with pytest.raises(InvalidRequest, match="is not a character of Unicode"):
        compiler.compile(Constraint(ConstraintKind.GRAMMAR, f'root ::= "{number}"'))


def test_json_schemas_are_told_from_what_only_looks_like_them() -> None:
    grammar = """
        // %json {"comment": 1}
        start: "%json {\\"a\\": 1}" /%json \\/{}/ a %json{"b": {"c": "}"}} %json  {"d": []}
        a: "\\"" %json {broken
    """
    assert [grammar[place] for place in embedded_schemas(grammar)] == ['{"b": {"c": "}"}}', '{"d": []}']
    assert not list(embedded_schemas('root ::= %json {"a": 1}'))


@pytest.mark.parametrize("piece", ['"', '\\"', "/", "//\n", "%json {", '%json {"', '%json {"a": [', "%json {}"])
def test_looking_for_schemas_takes_time_that_the_size_bounds(piece: str) -> None:
    text = "start:" + piece * (147456 // len(piece))
    started = time.process_time()
    list(embedded_schemas(text))
    assert time.process_time() - started < 2
