"""`tools` and `tool_choice`, as what they ask for."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.http.strict import Strict
from saguaro.errors import InvalidRequest
from saguaro.tools import Tool, ToolUse


class FunctionBody(Strict):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: Annotated[
        dict[str, Any] | None, Field(description="JSON schema of the arguments, an object. Default: none are taken.")
    ] = None
    strict: Annotated[
        bool | None, Field(description="Arguments keep to the schema in any case, not only where a call is demanded.")
    ] = None


class ToolBody(Strict):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: FunctionBody

    def tool(self) -> Tool:
        """As the gateway has it."""
        function = self.function
        parameters = "" if function.parameters is None else json.dumps(function.parameters, ensure_ascii=False)
        return Tool(function.name, function.description or "", parameters, bool(function.strict))


class NamedFunction(Strict):
    """A function by its name."""

    name: str


class NamedTool(Strict):
    """The one tool to call."""

    type: Literal["function"]
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedTool


def tool_use(tools: list[ToolBody] | None, choice: ToolChoice | None, parallel: bool | None) -> ToolUse | None:
    """None where nothing may be called: then the model does not hear of the tools. Raises InvalidRequest for a choice
    among no tools.
    """
    if not tools:
        if choice not in (None, "none", "auto"):
            raise InvalidRequest("tool_choice", "tool_choice is given, but no tools to choose from")
        return None
    if choice == "none":
        return None
    only = choice.function.name if isinstance(choice, NamedTool) else ""
    return ToolUse(
        tuple(tool.tool() for tool in tools),
        must_call=choice == "required" or bool(only),
        only=only,
        single=parallel is False,
    )
