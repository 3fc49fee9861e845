"""The SDK: answers of a gateway, synchronous and asynchronous.

    >>> from saguaro.client import Client
    >>> with Client("127.0.0.1:50051") as client:
    ...     with client.generate("The saguaro", max_tokens=32) as stream:
    ...         for delta in stream:
    ...             print(delta.text, end="")
    It stands still.
    >>> stream.result.num_generated_tokens > 3, stream.result.tokens_per_second > 0
    (True, True)

Errors are those of `saguaro.errors`, each a class of its own:

    >>> from saguaro.errors import InvalidRequest
    >>> try:
    ...     Client("127.0.0.1:50051").generate("Hi", temperature=-1)
    ... except InvalidRequest as error:
    ...     print(error.field, "|", error)
    sampling.temperature | temperature is -1; it must be from 0 (greedy) to 100

It needs no model library: the base package is all.
"""

from saguaro.answers import AnswerDelta, ChatMessage, ServedModel
from saguaro.channel import Tls
from saguaro.client.aio import AsyncAnswerStream, AsyncClient
from saguaro.client.answer import Answer
from saguaro.client.requests import DEFAULT_ADDRESS
from saguaro.client.retry import NO_RETRY, Retry
from saguaro.client.sync import AnswerStream, Client
from saguaro.tools import Tool, ToolCall, ToolCallDelta
from saguaro.types import AcceptanceMode, ClassPolicy, PolicyReport, TrafficClass

__all__ = [
    "Client",
    "AsyncClient",
    "AnswerStream",
    "AsyncAnswerStream",
    "Answer",
    "AnswerDelta",
    "ChatMessage",
    "ServedModel",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "TrafficClass",
    "ClassPolicy",
    "AcceptanceMode",
    "PolicyReport",
    "Tls",
    "Retry",
    "NO_RETRY",
    "DEFAULT_ADDRESS",
]
