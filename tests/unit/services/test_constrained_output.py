"""With a constraint every answer keeps to it, and the tokens are those without speculation, hits and all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from saguaro.engine.grammar import ConstraintCompiler
from saguaro.engine.grammar import compiler as compiler_module
from saguaro.errors import SequenceFault
from saguaro.types import AcceptanceMode, Constraint, ConstraintKind, FinishReason, GenerationRequest
from tests.tiny_models import EOS_ID
from tests.unit.engine.json_schemas import SCHEMAS
from tests.unit.engine.test_grammar_json import json_schema
from tests.unit.services.conftest import TinyModels
from tests.unit.services.constrained import CONSTRAINTS, House
from tests.unit.services.in_memory_trio import Pace


@pytest.fixture(scope="module")
def house(tiny: TinyModels) -> House:
    return House.of(tiny)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_constrained_tokens_are_those_without_speculation_at_every_pace(
    house: House, kind: str, temperature: float
) -> None:
    constraint, plain = CONSTRAINTS[kind], house.trio(draft=None)
    trios = [house.trio(pace=pace) for pace in Pace]
    trios += [house.trio("random_draft", lookahead=6), house.trio(just_in_time_ms=0), house.trio(is_fixed=False)]
    for seed, trio in enumerate(trios):
        request = house.request(constraint, temperature=temperature, seed=seed)
        expected, answer = plain.generate(request), trio.generate(request)
        house.assert_kept(expected, constraint)
        assert answer.tokens == expected.tokens
        assert answer.finished.reason == expected.finished.reason
        trio.assert_all_blocks_free()


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_answers_in_rejection_mode_are_kept_and_drafted_within_the_grammar(house: House, kind: str) -> None:
    constraint, trio, accepted = CONSTRAINTS[kind], house.trio(), 0
    for seed in range(3):
        request = house.request(constraint, temperature=0.8, seed=seed, acceptance=AcceptanceMode.REJECTION)
        answer = trio.generate(request)
        house.assert_kept(answer, constraint)
        assert trio.speculations.num_malformed == 0
        accepted += answer.finished.speculation.num_accepted_tokens
    assert accepted > 0
    trio.assert_all_blocks_free()


def test_fifty_schemas_are_kept_under_speculation_and_the_cache_still_hits(house: House) -> None:
    trio, hits, lookups = house.trio(budget=16), 0, 0
    for schema in SCHEMAS.values():
        constraint = json_schema(schema)
        for seed, temperature in enumerate((0.0, 0.8, 0.8)):
            answer = trio.generate(house.request(constraint, temperature=temperature, seed=seed))
            house.assert_kept(answer, constraint)
            report = answer.finished.speculation
            hits += report.cache_hits
            lookups += report.cache_hits + report.cache_misses + report.cache_late
            if answer.finished.reason is FinishReason.STOP:
                break
        assert answer.finished.reason is FinishReason.STOP, "none of three answers came to an end"
    print(f"{hits} hits in {lookups} lookups")
    assert hits > 0.5 * lookups > 50


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_acceptance_does_not_suffer_from_constraints(house: House, temperature: float) -> None:
    # Where the draft is the target, every draft token stands, unless the two process logits differently.
    trio = house.trio("target", lookahead=3, budget=16)
    request = house.request(CONSTRAINTS["json_schema"], temperature=temperature, seed=2, repetition_penalty=1.1)
    report = trio.generate(request).finished.speculation
    # What was drafted past the end of the answer is lost, and that is all.
    assert report.num_accepted_tokens >= report.num_draft_tokens - 3 > 0
    assert report.cache_misses == 0


def test_a_draft_that_knows_nothing_of_the_constraint_costs_acceptance_and_no_token(house: House) -> None:
    request = house.request(CONSTRAINTS["json_schema"], temperature=0.8, seed=2)
    aware, unaware = house.trio("target"), house.trio("target")
    unaware.scheduler._draft = replace(unaware.scheduler._draft, compiler=None)
    unaware.detach()
    unaware.attach()  # with a stream that has no compiler
    one, other = aware.generate(request), unaware.generate(request)
    assert one.tokens == other.tokens
    assert one.finished.speculation.num_accepted_tokens > other.finished.speculation.num_accepted_tokens


def test_a_constraint_that_the_speculator_cannot_compile_costs_acceptance_and_no_token(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = house.request(CONSTRAINTS["regex"])
    expected = house.trio(draft=None).generate(request).tokens
    trio = house.trio()
    refusing = ConstraintCompiler.for_model(house.models.target / "nowhere", num_tokens=258, eos_token_ids=(EOS_ID,))
    trio.scheduler._draft = replace(trio.scheduler._draft, compiler=refusing)
    trio.detach()
    trio.attach()
    assert trio.generate(request).tokens == expected


def test_preempted_and_reopened_sequences_go_on_where_they_stood(house: House) -> None:
    requests = [
        house.request(constraint, temperature=0.8, seed=seed) for constraint in CONSTRAINTS.values() for seed in (0, 1)
    ]
    solo = [house.trio(draft=None).generate(item).tokens for item in requests]
    trio = house.trio(target_blocks=28, draft_blocks=64)  # 112 tokens for eight sequences
    answers = [trio.submit(item)[1] for item in requests]
    for _ in range(6):
        trio.step()
    trio.detach()
    for _ in range(2):
        trio.step()
    trio.attach()
    trio.run(*answers)
    assert trio.loop.scheduler.num_preemptions > 0
    assert [answer.tokens for answer in answers] == solo
    trio.assert_all_blocks_free()


def test_constrained_and_free_sequences_of_one_batch_say_what_each_says_alone(house: House) -> None:
    constraints = [None, CONSTRAINTS["json_schema"], None, CONSTRAINTS["regex"], CONSTRAINTS["grammar"]]
    requests = [
        house.request(item, temperature=0.8 * (index % 2), seed=index) for index, item in enumerate(constraints)
    ]
    solo = [house.trio(draft=None).generate(item).tokens for item in requests]
    trio = house.trio()
    answers = [trio.submit(item)[1] for item in requests]
    trio.run(*answers)
    assert [answer.tokens for answer in answers] == solo


def test_the_end_comes_exactly_where_the_grammar_may_end(house: House) -> None:
    """A model that longs for the end at every place gets it at the first where it is allowed, and not before."""
    longing = ((EOS_ID, 100.0),)
    for text, length in (("[a-z]{7}", 7), ("[a-z]{4,9}", 4), ("x(yy)+", 3), ("[a-z]*", 0)):
        request = house.request(Constraint(ConstraintKind.REGEX, text))
        request = replace(request, sampling=replace(request.sampling, logit_bias=longing))
        answer = house.trio().generate(request)
        assert (len(answer.tokens), answer.tokens[-1]) == (length + 1, EOS_ID)
        assert answer.finished.reason is FinishReason.STOP


def test_a_grammar_that_ends_before_min_tokens_wins_and_one_that_goes_on_waits(house: House) -> None:
    for text, length in (("abc", 3), ("[a-z]*", 10)):
        request = house.request(Constraint(ConstraintKind.REGEX, text), min_tokens=10)
        request = replace(
            request, sampling=replace(request.sampling, logit_bias=((EOS_ID, 100.0),), repetition_penalty=1.2)
        )
        plain, drafted = house.trio(draft=None).generate(request), house.trio().generate(request)
        assert drafted.tokens == plain.tokens
        assert len(drafted.tokens) == length + 1


def test_a_grammar_that_becomes_too_complex_ends_its_sequence_with_the_reason_and_no_other(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = compiler_module.LLParserLimits(step_lexer_fuel=300, precompute_large_lexemes=False, verbose_errors=False)
    monkeypatch.setattr(compiler_module, "_LIMITS", limits)
    trio = house.trio(
        compiler=ConstraintCompiler.for_model(house.models.target, num_tokens=258, eos_token_ids=(EOS_ID,))
    )
    complex_one = Constraint(ConstraintKind.REGEX, "0" + "(a?b|c|[a-z]{3}x)?" * 100)
    bystanders: list[GenerationRequest] = [house.request(None), house.request(CONSTRAINTS["regex"], temperature=0.8)]
    solo = [house.trio(draft=None).generate(item).tokens for item in bystanders]
    _, doomed = trio.submit(house.request(complex_one))
    answers = [trio.submit(item)[1] for item in bystanders]
    trio.run(doomed, *answers)
    assert isinstance(doomed.events[-1], SequenceFault)
    assert "the constraint cannot be followed further" in str(doomed.events[-1])
    assert [answer.tokens for answer in answers] == solo
    trio.assert_all_blocks_free()
