"""What all bodies have in common, and how they are read: strictly, and at a cost that the body's size bounds.

A validator that collects every fault of a body makes of 24 KB of them tens of thousands. So lists end at their first
fault, and mappings are counted before they are looked into.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from gateway.http.errors import malformed
from saguaro.errors import InvalidRequest

MAX_KEY_CHARACTERS = 1024


class Strict(BaseModel):
    """A JSON object read without conversions: "8" is no number. Null is as good as absent where there is a default."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


Body = TypeVar("Body", bound=Strict)

# Annotates a list: its first bad item is its only fault.
FIRST_FAULT: Any = Field(fail_fast=True)


class AtMost:
    """Annotates a mapping that takes so many entries; more are refused before one is looked at."""

    def __init__(self, num_entries: int) -> None:
        self._num_entries = num_entries

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def _check(self, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > self._num_entries:
            raise PydanticCustomError(
                "too_long",
                "it has {count} entries; it may have at most {most}",
                {"count": len(value), "most": self._num_entries},
            )
        return value


def parse(kind: type[Body], raw: bytes) -> Body:
    """The body. Raises InvalidRequest for what is no JSON, names a field twice, or does not fit."""
    try:
        body = kind.model_validate_json(raw)
    except ValidationError as error:
        raise malformed(error) from None
    # After it: what reads JSON there is strict in all but this.
    try:
        json.loads(raw, object_pairs_hook=_checked_object)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("", f"the body is not JSON: {error}") from None
    return body


def _checked_object(pairs: list[tuple[str, Any]]) -> None:
    keys = {key for key, _ in pairs}
    if len(keys) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise InvalidRequest("", f'the body has the key "{twice[:80]}" twice in one object; give it once')
    if any(len(key) > MAX_KEY_CHARACTERS for key in keys):
        longest = max(keys, key=len)
        raise InvalidRequest(
            "", f"a key has {len(longest)} characters ({longest[:40]}...); it may have at most {MAX_KEY_CHARACTERS}"
        )
