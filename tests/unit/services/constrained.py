"""Constrained requests to the tiny models, whose tokens are bytes, and a judge of what was answered."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from saguaro.engine.grammar import ConstraintCompiler
from saguaro.types import Constraint, ConstraintKind, FinishReason, GenerationRequest, SamplingParams
from tests.tiny_models import EOS_ID
from tests.unit.engine.grammar_walks import Walker
from tests.unit.engine.test_grammar_json import json_schema, judge
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import Answer, InMemoryTrio

PROMPT = tuple(range(40, 63))
ADDRESS = {
    "type": "object",
    "properties": {"street": {"type": "string"}, "number": {"type": "integer"}, "kind": {"enum": ["home", "work"]}},
    "required": ["street", "kind"],
    "additionalProperties": False,
}
SUM = r"[0-9]{1,4}(\+[0-9]{1,4}){0,3}"
CONSTRAINTS = {
    "json_schema": json_schema(ADDRESS),
    "json_object": Constraint(ConstraintKind.JSON_OBJECT),
    "regex": Constraint(ConstraintKind.REGEX, SUM),
    "grammar": Constraint(ConstraintKind.GRAMMAR, 'root ::= num ("+" num){0,3}\nnum ::= [0-9]{1,4}'),
}
_CLOSERS, _BLANKS = '"}]', " \t\r\n"
_BIAS = 6.0


@dataclass(frozen=True)
class House:
    """Tiny models with a compiler for their tokenizer."""

    models: TinyModels
    compiler: ConstraintCompiler
    walker: Walker

    @classmethod
    def of(cls, models: TinyModels) -> House:
        compiler = ConstraintCompiler.for_model(models.target, num_tokens=EOS_ID + 1, eos_token_ids=(EOS_ID,))
        return cls(models, compiler, Walker(models.target))

    def trio(self, draft: str | None = "draft", **options: Any) -> InMemoryTrio:
        folder = None if draft is None else getattr(self.models, draft)
        options = {"eos_token_ids": [EOS_ID], "compiler": self.compiler, **options}
        return InMemoryTrio(self.models.target, folder, **options)

    def request(
        self, constraint: Constraint | None, *, temperature: float = 0.0, seed: int = 0, **options: Any
    ) -> GenerationRequest:
        """Random models would go on in a string for ever, so what closes is made likelier, and blanks less likely."""
        bias = ((EOS_ID, _BIAS), *((token, _BIAS) for token in self.walker.encode(_CLOSERS)))
        bias += tuple((token, -_BIAS) for token in self.walker.encode(_BLANKS))
        sampling = SamplingParams(temperature, seed=seed, logit_bias=bias, constraint=constraint, **options)
        return GenerationRequest("r", PROMPT, sampling, max_tokens=100)

    def text(self, answer: Answer) -> str:
        return self.walker.decode([token for token in answer.tokens if token != EOS_ID])

    def assert_kept(self, answer: Answer, constraint: Constraint) -> None:
        """A finished answer matches; one that max_tokens ended is the beginning of what matches."""
        text = self.text(answer)
        if answer.finished.reason is not FinishReason.STOP:
            self.compiler.compile(constraint).advance(answer.tokens)
        elif constraint.kind is ConstraintKind.JSON_SCHEMA:
            judge(json.loads(constraint.text)).validate(json.loads(text))
        elif constraint.kind is ConstraintKind.JSON_OBJECT:
            assert isinstance(json.loads(text), dict)
        else:
            assert re.fullmatch(SUM, text)
