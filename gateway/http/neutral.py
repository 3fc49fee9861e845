"""Fields of OpenAI's API that this server knows and does not serve: refused by name, unless they say nothing.

To ignore them would lie: a client that sends tools waits for a tool call.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


class Neutral:
    """Annotates a field that takes null and the given values, all of which ask for nothing."""

    def __init__(self, *values: Any) -> None:
        self._values = (None, *values)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"enum": list(self._values), "description": "Not supported beyond these values."}

    def _check(self, value: Any) -> None:
        # 0 is not False here, as in JSON.
        if not any(type(value) is type(neutral) and value == neutral for neutral in self._values):
            allowed = ", ".join(json.dumps(neutral) for neutral in self._values)
            raise PydanticCustomError(
                "not_supported",
                "this server does not support it; leave it out ({allowed} would do)",
                {"allowed": allowed},
            )
