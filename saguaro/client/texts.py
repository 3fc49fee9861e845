"""What a caller gives as text must be text: Python's strings can hold halves of characters, which no message can.

They come from bytes that are no UTF-8, as arguments of a command line, file names, or standard input.
"""

from __future__ import annotations

from collections.abc import Iterator

from saguaro.answers import AnswerRequest, ChatMessage, ChatPrompt, TextPrompt
from saguaro.errors import InvalidRequest
from saguaro.validation import constraint_field


def check_text(field: str, text: object) -> str:
    """The text. Raises InvalidRequest, with field and place, for what cannot be encoded or is no text at all."""
    if not isinstance(text, str):
        raise InvalidRequest(field, f"{field} is of type {type(text).__name__}; it must be text (str)")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            field,
            f"{field} is no valid text: character {error.start} is the lone surrogate {text[error.start]!r}; the text "
            "probably comes from bytes that are not UTF-8",
        ) from None
    return text


def check_key(api_key: str | None) -> str | None:
    """An API key that can travel. Raises InvalidRequest for one that cannot, without telling it."""
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        raise InvalidRequest("api_key", "the API key has characters that are not printable ASCII; keys have none")
    return api_key


def check_texts(request: AnswerRequest) -> None:
    """Every text of the request, by `check_text`."""
    for field, text in _texts(request):
        check_text(field, text)


def check_message(message: ChatMessage, place: str) -> None:
    """Every text of the message, which errors name by its place."""
    for field, text in _texts_of(message, place):
        check_text(field, text)


def _texts(request: AnswerRequest) -> Iterator[tuple[str, object]]:
    match request.prompt:
        case TextPrompt(text):
            yield "prompt", text
        case ChatPrompt(messages):
            for index, message in enumerate(messages):
                yield from _texts_of(message, f"messages.{index}")
    yield "model", request.model
    if request.session_id is not None:
        yield "session_id", request.session_id
    for text in request.stop:
        yield "stop", text
    if (constraint := request.sampling.constraint) is not None:
        yield constraint_field(constraint), constraint.text
    if request.tool_use is not None:
        yield "chat.tool_choice", request.tool_use.only
        for tool in request.tool_use.tools:
            for text in (tool.name, tool.description, tool.parameters):
                yield "chat.tools", text


def _texts_of(message: ChatMessage, place: str) -> Iterator[tuple[str, object]]:
    yield f"{place}.role", message.role
    yield f"{place}.content", message.content
    yield f"{place}.tool_call_id", message.tool_call_id
    for call in message.tool_calls:
        for text in (call.id, call.name, call.arguments):
            yield f"{place}.tool_calls", text
