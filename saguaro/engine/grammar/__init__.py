"""Constrained output: which tokens a JSON schema, a regular expression or a grammar allows next.

A `ConstraintCompiler` turns a `Constraint` into the `ConstraintState` of a sequence that has written nothing yet; the
state advances with the sequence's tokens. `masks_for_runs` asks many states at once what they allow at each row of a
forward, draft tokens included, and `TokenMasks.apply` puts that onto the logits. Parsing and masks are llguidance's.
"""

from saguaro.engine.grammar.compiler import ConstraintCompiler
from saguaro.engine.grammar.masks import TokenMasks
from saguaro.engine.grammar.state import ConstraintState, masks_for_runs
from saguaro.engine.grammar.vocabulary import Vocabulary

__all__ = ["ConstraintCompiler", "ConstraintState", "TokenMasks", "Vocabulary", "masks_for_runs"]
