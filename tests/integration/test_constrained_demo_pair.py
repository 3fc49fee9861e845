"""The embedded pair under fifty schemas: every answer validates, and speculation still hits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.text import TextModel
from saguaro.answers import ChatMessage, ChatPrompt
from saguaro.engine.grammar import ConstraintCompiler
from saguaro.engine.loading import load_model
from saguaro.engine.model_runner import ModelRunner
from saguaro.types import FinishReason, GenerationRequest, SamplingParams
from tests.unit.engine.json_schemas import SCHEMAS
from tests.unit.engine.test_grammar_json import json_schema, judge
from tests.unit.services.in_memory_trio import Answer, InMemoryTrio

SAMPLE = ("required properties", "enum of mixed values", "nested objects")
MAX_TOKENS = 200
NUM_TRIES = 4
# Where a schema sets no bound, this model writes digits, or elements, or nests them, without end: what ends a value is
# made likelier where it is allowed.
ENDS = ("}", "]", "}}", "null", " null")
END_BIAS = 5.0


@dataclass(frozen=True)
class DemoPair:
    trio: InMemoryTrio
    text: TextModel
    end_token_ids: tuple[int, ...]

    def ask(self, schema: Any, seed: int, *, speculation: bool = True) -> Answer:
        question = f"Answer with a short JSON value that this schema allows: {json.dumps(schema)}"
        request = GenerationRequest(
            "r",
            self.text.encode_prompt(ChatPrompt((ChatMessage("user", question),))),
            SamplingParams(
                0.8 if seed else 0.0,
                seed=seed,
                constraint=json_schema(schema),
                logit_bias=tuple((token, END_BIAS) for token in self.end_token_ids),
            ),
            max_tokens=MAX_TOKENS,
            disable_speculation=not speculation,
        )
        return self.trio.generate(request)


@pytest.fixture(scope="module")
def pair() -> DemoPair:
    target = load_model("demo-target", dtype="float32", device="cpu", linear="packed")
    draft = load_model(
        "demo-draft", dtype="float32", device="cpu", linear="int8", role="draft", embeddings_from="demo-target"
    )
    compiler = ConstraintCompiler.for_model(
        target.tokenizer_folder,
        num_tokens=target.identity.usable_vocabulary_tokens,
        eos_token_ids=target.eos_token_ids,
    )
    runners = [ModelRunner(loaded.model, num_blocks=256, block_size=16) for loaded in (target, draft)]
    trio = InMemoryTrio(*runners, budget=16, eos_token_ids=target.eos_token_ids, compiler=compiler)
    text = TextModel.from_folder(target.tokenizer_folder)
    spelled = (text.encode(end) for end in ENDS)
    ends = {*target.eos_token_ids, *(token_ids[0] for token_ids in spelled if len(token_ids) == 1)}
    return DemoPair(trio, text, tuple(ends))


def check(pair: DemoPair, names: list[str]) -> None:
    """Whatever is finished validates; each schema gets that within a few tries: the model may ramble."""
    hits = lookups = tokens = unfinished = 0
    for name in names:
        for seed in range(NUM_TRIES):
            answer = pair.ask(SCHEMAS[name], seed)
            report = answer.finished.speculation
            hits += report.cache_hits
            lookups += report.cache_hits + report.cache_misses + report.cache_late
            tokens += len(answer.tokens)
            if answer.finished.reason is FinishReason.STOP:
                break
            unfinished += 1
        assert answer.finished.reason is FinishReason.STOP, f"{name}: {pair.text.decode(answer.tokens)}"
        judge(SCHEMAS[name]).validate(json.loads(pair.text.decode(answer.tokens)))
    print(f"{len(names)} schemas, {tokens} tokens, {unfinished} answers too long, {hits} hits in {lookups} lookups")
    assert hits > 0.3 * lookups > 0


@pytest.mark.slow
def test_answers_to_some_schemas_validate_and_are_those_without_speculation(pair: DemoPair) -> None:
    check(pair, list(SAMPLE))
    for name in SAMPLE[:2]:
        assert pair.ask(SCHEMAS[name], 3).tokens == pair.ask(SCHEMAS[name], 3, speculation=False).tokens


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_answers_to_fifty_schemas_validate(pair: DemoPair) -> None:
    check(pair, list(SCHEMAS))
