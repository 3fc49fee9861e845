"""What cannot be served is refused in words, at once and without harm."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path

import pytest
import torch

from saguaro.engine.grammar import ConstraintCompiler, ConstraintState, Vocabulary
from saguaro.engine.grammar import compiler as compiler_module
from saguaro.errors import ConfigurationError, InvalidRequest, SequenceFault
from saguaro.types import Constraint, ConstraintKind
from tests.tiny_models import EOS_ID, write_tiny_model
from tests.unit.engine.grammar_walks import Walker
from tests.unit.engine.test_grammar_json import json_schema

SCHEMA, REGEX, GRAMMAR = ConstraintKind.JSON_SCHEMA, ConstraintKind.REGEX, ConstraintKind.GRAMMAR


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (SCHEMA, '{"type": "strin"}', "Invalid type: strin"),
        (SCHEMA, '{"type": "object"', "is not JSON: Expecting ',' delimiter"),
        (SCHEMA, '["type"]', "is a JSON list; a schema is an object, true or false"),
        (SCHEMA, "false", "Unsatisfiable schema"),
        (SCHEMA, '{"type": "integer", "minimum": 5, "maximum": 2}', r"minimum \(5\) is greater than maximum \(2\)"),
        (SCHEMA, '{"pattern": "("}', "unclosed group"),
        (SCHEMA, '{"$ref": "file:///etc/passwd"}', "does not fetch"),
        (SCHEMA, '{"not": {"type": "string"}}', r'Unimplemented keys: \["not"\]'),
        (SCHEMA, '{"x-guidance": {"lenient": true}, "not": {"type": "string"}}', r'Unimplemented keys: \["not"\]'),
        (SCHEMA, '{"oneOf": [{"type": "integer"}, {"type": "number"}]}', "oneOf constraints are not supported"),
        (SCHEMA, "[" * 60_000, "is not JSON"),
        (SCHEMA, " ", "is empty"),
        (REGEX, "a(b", "unclosed group"),
        (REGEX, "(?=a)b", "look-around"),
        (REGEX, r"(a)\1", "backreferences are not supported"),
        (REGEX, "", "is empty"),
        (REGEX, "é" * 4097, "has 8194 bytes; at most 8192"),
        (GRAMMAR, "start: missing", 'unknown name: "missing"'),
        (GRAMMAR, 'root ::= "a" missing', "'missing' not found"),
        (GRAMMAR, 'root := "a"', "Expected ::="),
        (GRAMMAR, 'root ::= "a\\', "string index out of range"),
        (ConstraintKind.JSON_OBJECT, "{}", "has 2 bytes; at most 0"),
    ],
)
def test_a_bad_constraint_is_refused_with_its_field_and_the_reason(
    kind: ConstraintKind, text: str, message: str, compiler: ConstraintCompiler
) -> None:
    for _ in range(2):  # also when the refusal comes from the cache
        with pytest.raises(InvalidRequest, match=message) as caught:
            compiler.compile(Constraint(kind, text))
        assert caught.value.field == f"sampling.{kind.name.lower()}"
        assert str(caught.value).startswith(caught.value.field)


def schema_chain(links: int) -> str:
    schemas = {f"d{i}": {"properties": {"": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(links)}
    return json.dumps({"$defs": {**schemas, f"d{links}": {}}, "$ref": "#/$defs/d0"}, separators=(",", ":"))


def schemas_in_a_grammar(schema: str) -> str:
    """As many copies of `schema` as a grammar may have."""
    count = 131072 // len(schema)
    return "start: " + " | ".join(f"%json {schema}" for _ in range(count)) + "\n"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SCHEMA, schema_chain(1250)),
        (SCHEMA, '{"items":' * 900 + "{}" + "}" * 900),
        (
            SCHEMA,
            json.dumps({"allOf": [{"anyOf": [{"required": [f"{i}"]}, {"required": [f"x{i}"]}]} for i in range(40)]}),
        ),
        (REGEX, "(" * 4000 + "a" + ")" * 4000),
        (REGEX, "(a?b|c)?" * 1000),
        (REGEX, ".*a" * 2700),
        (REGEX, "a{1000}{1000}{1000}"),
        (GRAMMAR, "start: " + "(" * 8000 + '"a"' + ")" * 8000),
        (GRAMMAR, "start: A0\n" + "\n".join(f"A{i}: A{i + 1}" for i in range(1200)) + '\nA1200: "b"\n'),
        (GRAMMAR, "root ::= " + "(" * 8000 + '"a"' + ")" * 8000),
        (GRAMMAR, schemas_in_a_grammar(json.dumps({"properties": {f"p{i:05}": {"enum": [1]} for i in range(1400)}}))),
        (GRAMMAR, schemas_in_a_grammar(schema_chain(600))),
    ],
    ids=[
        "chain of $ref",
        "nested items",
        "allOf of anyOf",
        "brackets",
        "options",
        "stars",
        "counts",
        "lark",
        "lark chain",
        "gbnf",
        "options in grammar",
        "chains in grammar",
    ],
)
def test_the_worst_text_of_the_greatest_size_neither_crashes_nor_holds_up_for_long(
    kind: ConstraintKind, text: str, compiler: ConstraintCompiler, walker: Walker
) -> None:
    """At the usual stack size, the first of these ends the process."""
    started = time.process_time()
    with contextlib.suppress(InvalidRequest):
        walker.allowed(compiler.compile(Constraint(kind, text)))
    assert time.process_time() - started < 5


def test_a_refusal_does_not_repeat_a_long_text(compiler: ConstraintCompiler) -> None:
    with pytest.raises(InvalidRequest, match="exceed the maximum number of nested") as caught:
        compiler.compile(Constraint(REGEX, "(" * 4000 + "a" + ")" * 4000))
    assert len(str(caught.value)) < 1000


def test_threads_that_ask_at_once_share_one_compilation(
    demo_folder: Path, walker: Walker, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = ConstraintCompiler(Vocabulary.from_folder(demo_folder, num_tokens=49152, eos_token_ids=(2,)))
    really, compilations, states = compiler_module._compiled, list[Constraint](), list[ConstraintState]()

    def counting(constraint: Constraint, vocabulary: Vocabulary) -> object:
        compilations.append(constraint)
        return really(constraint, vocabulary)

    monkeypatch.setattr(compiler_module, "_compiled", counting)
    constraint = json_schema({"enum": list(range(100))})
    threads = [threading.Thread(target=lambda: states.append(compiler.compile(constraint))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert compilations == [constraint]
    assert len(states) == 8
    states[0].advance(walker.encode("9"))
    assert not states[1].may_end


def test_the_constraint_unused_for_longest_is_forgotten_first(
    demo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = Vocabulary.from_folder(demo_folder, num_tokens=49152, eos_token_ids=(2,))
    compiler = ConstraintCompiler(vocabulary, cache_size=2)
    really, compiled = compiler_module._compiled, list[str]()

    def noting(constraint: Constraint, vocabulary: Vocabulary) -> object:
        compiled.append(constraint.text)
        return really(constraint, vocabulary)

    monkeypatch.setattr(compiler_module, "_compiled", noting)
    for text in "abacab":
        compiler.compile(Constraint(REGEX, text))
    assert compiled == ["a", "b", "c", "b"]


def test_a_grammar_that_becomes_too_complex_ends_its_sequence_only(
    demo_folder: Path, walker: Walker, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = Vocabulary.from_folder(demo_folder, num_tokens=49152, eos_token_ids=(2,))
    limits = compiler_module.LLParserLimits(step_lexer_fuel=300, precompute_large_lexemes=False, verbose_errors=False)
    monkeypatch.setattr(compiler_module, "_LIMITS", limits)
    compiler = ConstraintCompiler(vocabulary)
    with pytest.raises(InvalidRequest, match="too many expressions"):
        compiler.compile(Constraint(REGEX, "(a?b|c|[a-z]{3}x)?" * 100))
    state = compiler.compile(Constraint(REGEX, "0" + "(a?b|c|[a-z]{3}x)?" * 100))
    zero, b = walker.encode("0"), walker.encode("b")
    masks = state.masks_for_run([*zero, *b])
    assert (masks != 0).any(dim=1).all()
    with pytest.raises(SequenceFault, match=r"cannot be followed further: .*too many expressions"):
        state.advance(zero)
    other = compiler.compile(Constraint(REGEX, "0b"))
    other.advance(zero + b)


@pytest.mark.parametrize("name", ["demo", "tiny"])
def test_masks_fit_the_vocabulary_of_their_model(name: str, demo_folder: Path, tmp_path: Path) -> None:
    if name == "demo":
        vocabulary = Vocabulary.from_folder(demo_folder, num_tokens=49152, eos_token_ids=(2,))
    else:
        folder = write_tiny_model(tmp_path, seed=0)
        vocabulary = Vocabulary.from_folder(folder, num_tokens=258, eos_token_ids=(EOS_ID,))
    state = ConstraintCompiler(vocabulary).compile(Constraint(REGEX, "x?"))
    assert state.masks_for_run(()).shape == (1, vocabulary.num_words)
    assert state.may_end
    assert torch.equal(state.masks_for_run([vocabulary.eos_token_ids[0]])[1], vocabulary.only_the_end)


def test_a_folder_without_a_usable_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"expected tokenizer\.json"):
        Vocabulary.from_folder(tmp_path, num_tokens=9, eos_token_ids=(1,))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="cannot serve grammars"):
        Vocabulary.from_folder(tmp_path, num_tokens=9, eos_token_ids=(1,))
    with pytest.raises(ConfigurationError, match="no end-of-sequence id"):
        Vocabulary.from_folder(tmp_path, num_tokens=9, eos_token_ids=())
