"""Constrained to a regular expression or a grammar, a model writes what it matches."""

from __future__ import annotations

import re

import pytest

from saguaro.engine.grammar import ConstraintCompiler
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
