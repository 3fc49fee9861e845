"""`response_format`, OpenAI's way to constrain an answer, as the constraint that it means."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.http.strict import Strict
from saguaro.client.constraint import constraint_of
from saguaro.types import Constraint


class TextFormat(Strict):
    """Free text."""

    type: Literal["text"]


class JsonObjectFormat(Strict):
    """Any JSON object."""

    type: Literal["json_object"]


class NamedSchema(Strict):
    """A schema and what it is called. Schemas are kept whether `strict` is said or not."""

    name: Annotated[str | None, Field(description="For the caller alone.")] = None
    description: str | None = None
    json_schema: Annotated[dict[str, Any] | bool, Field(alias="schema")]
    strict: bool | None = None


class JsonSchemaFormat(Strict):
    """JSON of one schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


def constraint_from(
    response_format: ResponseFormat | None, regex: str | None, grammar: str | None
) -> Constraint | None:
    """None where the answer is free. Raises InvalidRequest for more than one constraint."""
    schema = response_format.json_schema.json_schema if isinstance(response_format, JsonSchemaFormat) else None
    return constraint_of(schema, isinstance(response_format, JsonObjectFormat), regex, grammar)
