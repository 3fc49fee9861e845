"""The calls of one request: what its tools and its model's form make of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gateway.detokenize import Decoder
from gateway.tools.forms import CallForm
from gateway.tools.grammar import calls_constraint
from gateway.tools.parser import CallParser
from gateway.tools.visible_markers import VisibleMarkers
from saguaro.errors import InvalidRequest
from saguaro.tools import ToolUse
from saguaro.types import SamplingParams


class Calling:
    """`special_ids`: ids of the vocabulary's special tokens by their text."""

    def __init__(self, form: CallForm, use: ToolUse, special_ids: Mapping[str, int]) -> None:
        self._form = form
        self._names = frozenset(tool.name for tool in use.tools)
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

    def decoder(self, decoder: Decoder) -> Decoder:
        """One that prints the markers of calls, if `decoder` takes them for special tokens."""
        return VisibleMarkers(decoder, self._markers) if self._markers else decoder

    def parser(self) -> CallParser:
        """For one choice."""
        return CallParser(self._form, self._names)
