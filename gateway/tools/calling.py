"""The calls of one request: what its tools and its model's form make of an answer."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from gateway.detokenize import Decoder
from gateway.tools.forms import CallForm
from gateway.tools.grammar import calls_constraint, constrained_tools, tool_at
from gateway.tools.parser import CallParser
from gateway.tools.visible_markers import VisibleMarkers
from saguaro.errors import InvalidRequest
from saguaro.tools import ToolUse
from saguaro.types import SamplingParams
from saguaro.validation import constraint_field

# What the compiler says of a rule whose schema it cannot keep to; it goes on with the lines around.
_PLACE_OF_A_FAULT = re.compile(r"at (?P<line>\d+)\(\d+\): failed to compile JSON schema: (?P<reason>[^\n]*)")


class Calling:
    """`special_ids`: ids of the vocabulary's special tokens by their text."""

    def __init__(self, form: CallForm, use: ToolUse, special_ids: Mapping[str, int]) -> None:
        self._form, self._must_call = form, use.must_call
        self._names = frozenset(tool.name for tool in use.tools)
        self._constrained_tools = constrained_tools(use)
        try:
            self._constraint = calls_constraint(form, use, special_ids)
        except RecursionError:
            raise InvalidRequest("chat.tools", "the parameters of a tool are nested too deeply") from None
        self._markers = {
            special_ids[text]: text for text in (form.opening, form.closing) if text and text in special_ids
        }

    def constrained(self, sampling: SamplingParams) -> SamplingParams:
        """Parameters under which calls are as demanded. Raises InvalidRequest beside another constraint."""
        if sampling.constraint is not None:
            kind = sampling.constraint.kind.name.lower()
            raise InvalidRequest(
                "chat.tools", f"tools and {kind} are both given; an answer that must match {kind} can call nothing"
            )
        return replace(sampling, constraint=self._constraint)

    def understood(self, error: InvalidRequest) -> InvalidRequest:
        """The error as its caller understands it, who wrote no grammar."""
        if self._constraint is None or error.field != constraint_field(self._constraint):
            return error
        place = _PLACE_OF_A_FAULT.search(str(error))
        tool = None if place is None else tool_at(self._constraint.text, int(place["line"]), self._constrained_tools)
        if place is None or tool is None:
            return InvalidRequest("chat.tools", str(error).replace(error.field, "the grammar of calls of these tools"))
        return InvalidRequest(
            "chat.tools", f'the parameters of tool "{tool.name}" cannot be kept to: {place["reason"]}'
        )

    def decoder(self, decoder: Decoder) -> Decoder:
        """One that prints the markers of calls, if `decoder` takes them for special tokens."""
        return VisibleMarkers(decoder, self._markers) if self._markers else decoder

    def parser(self) -> CallParser:
        """For one choice."""
        return CallParser(self._form, self._names, thinks=self._form.begins_in_thought and not self._must_call)


@contextlib.asynccontextmanager
async def explained(calling: Calling | None) -> AsyncIterator[None]:
    """Where the grammar of calls is refused inside of the block, the error is about the tools."""
    try:
        yield
    except InvalidRequest as error:
        raise (error if calling is None else calling.understood(error)) from None
