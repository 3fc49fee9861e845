"""The SDK: answers of a gateway, synchronous and asynchronous.

    >>> from saguaro.client import Client
    >>> with Client("127.0.0.1:50051") as client:
    ...     with client.generate("The saguaro is", max_tokens=32) as stream:
    ...         for delta in stream:
    ...             print(delta.text, end="")
    ...     print(stream.result.tokens_per_second)

Errors are those of `saguaro.errors`.
"""

from saguaro.answers import AnswerDelta, ChatMessage, ServedModel
from saguaro.client.aio import AsyncAnswerStream, AsyncClient
from saguaro.client.answer import Answer
from saguaro.client.requests import DEFAULT_ADDRESS
from saguaro.client.sync import AnswerStream, Client

__all__ = [
    "Client",
    "AsyncClient",
    "AnswerStream",
    "AsyncAnswerStream",
    "Answer",
    "AnswerDelta",
    "ChatMessage",
    "ServedModel",
    "DEFAULT_ADDRESS",
]
