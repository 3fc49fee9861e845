"""From a constraint's text to the state of a sequence that has written nothing yet, compiled once per constraint."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from llguidance import LLMatcher, LLParserLimits
from llguidance.gbnf_to_lark import gbnf_to_lark

from saguaro.engine.grammar.state import ConstraintState
from saguaro.engine.grammar.vocabulary import Vocabulary
from saguaro.errors import ConfigurationError, InvalidRequest
from saguaro.grammar_text import embedded_schemas, is_lark, with_plain_escapes
from saguaro.json_schema import without_unknown_formats
from saguaro.types import Constraint, ConstraintKind
from saguaro.validation import constraint_field, validate_constraint

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

log = logging.getLogger(__name__)

# The library's own limits, a third to a half of its defaults: with those, expressions of 8 kB compile for 20 seconds.
_LIMITS = LLParserLimits(initial_lexer_fuel=300_000, step_lexer_fuel=100_000, verbose_errors=False)
# It goes down one stack frame and more a nested $ref or rule, and the frames of the deepest texts that
# `validate_constraint` lets pass need over 8 MiB, the usual stack. Only what is touched takes memory.
_STACK_BYTES = 512 * 1024 * 1024
# Weak models fall into endless white space between JSON tokens, where any amount of it is legal.
_JSON_WHITE_SPACE = r"[ \t\r\n]{1,32}"
_ANY_OBJECT = '{"type": "object"}'
_KEPT_TO_THE_LETTER: JsonCompileOptions = {
    "whitespace_pattern": _JSON_WHITE_SPACE,
    "lenient": False,
    "coerce_one_of": False,
}


@dataclass(frozen=True, slots=True)
class _Refused:
    """The library's words on a text that it cannot compile, or ours on a model that has no grammars."""

    message: str


class ConstraintCompiler:
    """Compiles constraints for one vocabulary and keeps the last `cache_size` of them. Threads may share one."""

    def __init__(self, vocabulary: Vocabulary | _Refused, *, cache_size: int = 64, max_threads: int = 2) -> None:
        self._vocabulary = vocabulary
        self._cache_size = cache_size
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(max_threads, thread_name_prefix="compile-constraint")
        self._compiled: OrderedDict[Constraint, Future[LLMatcher | _Refused]] = OrderedDict()

    @classmethod
    def for_model(
        cls, tokenizer_folder: Path, *, num_tokens: int, eos_token_ids: tuple[int, ...]
    ) -> ConstraintCompiler:
        """See `Vocabulary.from_folder`. A model whose tokenizer cannot serve grammars is served all the same: its
        compiler refuses every constraint with the reason.
        """
        try:
            return cls(Vocabulary.from_folder(tokenizer_folder, num_tokens=num_tokens, eos_token_ids=eos_token_ids))
        except ConfigurationError as error:
            log.warning("no constrained output: %s", error)
            return cls(_Refused(str(error)))

    def compile(self, constraint: Constraint) -> ConstraintState:
        """The state before the first token of the output.

        A millisecond for usual schemas, up to a second for the largest: not for the engine thread. Raises
        InvalidRequest with the library's message for a text that is malformed, too large, or says what cannot be kept.
        """
        return self.begin(constraint).result()

    def begin(self, constraint: Constraint) -> Future[ConstraintState]:
        """`compile` without waiting; what it raises, the future's result raises.

        Those that ask for the same constraint at once wait for one compilation.
        """
        state: Future[ConstraintState] = Future()
        try:
            validate_constraint(constraint)
            vocabulary = self._vocabulary_for(constraint)
        except InvalidRequest as error:
            state.set_exception(error)
        else:
            compilation = self._compilation(constraint, vocabulary)
            compilation.add_done_callback(partial(_hand_out, constraint, vocabulary, state))
        return state

    def _vocabulary_for(self, constraint: Constraint) -> Vocabulary:
        if isinstance(self._vocabulary, _Refused):
            raise _cannot_be_served(constraint, self._vocabulary)
        return self._vocabulary

    def _compilation(self, constraint: Constraint, vocabulary: Vocabulary) -> Future[LLMatcher | _Refused]:
        """Done, under way, or begun now."""
        with self._lock:
            if constraint not in self._compiled:
                with _deep_stacks():
                    self._compiled[constraint] = self._threads.submit(_compiled, constraint, vocabulary)
            self._compiled.move_to_end(constraint)
            if len(self._compiled) > self._cache_size:
                self._compiled.popitem(last=False)
            return self._compiled[constraint]


def _hand_out(
    constraint: Constraint,
    vocabulary: Vocabulary,
    state: Future[ConstraintState],
    compilation: Future[LLMatcher | _Refused],
) -> None:
    """A state of its own for one who asked, unless he went away."""
    if not state.set_running_or_notify_cancel():
        return
    fault = compilation.exception()
    if fault is not None:
        state.set_exception(fault)
        return
    compiled = compilation.result()
    if isinstance(compiled, _Refused):
        state.set_exception(_cannot_be_served(constraint, compiled))
    else:
        state.set_result(ConstraintState(compiled.deep_copy(), vocabulary))


def _cannot_be_served(constraint: Constraint, refused: _Refused) -> InvalidRequest:
    field = constraint_field(constraint)
    return InvalidRequest(field, f"{field} cannot be served: {refused.message}")


def _compiled(constraint: Constraint, vocabulary: Vocabulary) -> LLMatcher | _Refused:
    try:
        grammar = _to_grammar(constraint)
    except Exception as error:  # noqa: BLE001 - the converter raises whatever its parser runs into
        return _Refused(_shortened(str(error)))
    matcher = LLMatcher(vocabulary.tokenizer, grammar, log_level=0, limits=_LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()  # copies begin with the first states of the lexer, and its limits show now
    return _Refused(_shortened(matcher.get_error())) if matcher.is_error() else matcher


def _shortened(message: str) -> str:
    """Messages quote lines of the text, whole, and carets below them."""
    lines = message.strip().splitlines()
    return "\n".join(line if len(line) <= 160 else f"{line[:90]} ... {line[-60:]}" for line in lines)


def _to_grammar(constraint: Constraint) -> str:
    """In the library's own form. Raises what its converters raise."""
    match constraint.kind:
        case ConstraintKind.JSON_SCHEMA:
            is_object = constraint.text.lstrip().startswith("{")
            # The library takes options with objects only; a boolean schema means the same wrapped.
            text = without_unknown_formats(constraint.text)
            schema = text if is_object else f'{{"allOf": [{text}]}}'
            return LLMatcher.grammar_from_json_schema(schema, overrides=_KEPT_TO_THE_LETTER)
        case ConstraintKind.JSON_OBJECT:
            return LLMatcher.grammar_from_json_schema(_ANY_OBJECT, overrides=_KEPT_TO_THE_LETTER)
        case ConstraintKind.REGEX:
            return LLMatcher.grammar_from_regex(constraint.text)
        case ConstraintKind.GRAMMAR:
            return LLMatcher.grammar_from_lark(_lark(constraint.text))


def _lark(grammar: str) -> str:
    """In Lark's syntax, with schemas in it as the library takes them."""
    if not is_lark(grammar):
        return gbnf_to_lark(with_plain_escapes(grammar))
    parts, done = list[str](), 0
    for place in embedded_schemas(grammar):
        parts += [grammar[done : place.start], without_unknown_formats(grammar[place])]
        done = place.stop
    return "".join([*parts, grammar[done:]])


_stack_size_lock = threading.Lock()


@contextmanager
def _deep_stacks() -> Iterator[None]:
    """Threads that start meanwhile have deep stacks, those of others too: the size is the whole process's."""
    with _stack_size_lock:
        usual = threading.stack_size(_STACK_BYTES)
        try:
            yield
        finally:
            threading.stack_size(usual)
