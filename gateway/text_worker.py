"""The process in which prompts are rendered and tokenized: `python -m gateway.text_worker FOLDER`, see `text_workers`.

A frame is the length of what follows, in 8 bytes, and a pickle. The process tells when it has read the tokenizer, and
when it has tried the chat template; then each request, a function and what follows the text model among its arguments,
has one reply: (what became of it, the function's result or what is to be said about it).
"""

from __future__ import annotations

import ctypes
import os
import pickle
import resource
import signal
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

from gateway.chat_template import ChatTemplate
from gateway.text import TextModel, read_tokenizer
from saguaro.errors import ConfigurationError, InvalidRequest

DONE, REFUSED, UNUSABLE, FAILED = "done", "refused", "unusable", "failed"
LENGTH = struct.Struct("<Q")

_SPARE_BYTES = 2 << 30  # of address space that templates and tokens may take beyond what the model's files did
_DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


def frame(message: object) -> bytes:
    """What `message` is on the pipe."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def main(folder: Path) -> None:
    """Serves requests until the gateway closes the pipe or dies."""
    _leave_signals_to_the_gateway()
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not come between the frames
    try:
        tokenizer = read_tokenizer(folder)
        _send(replies, (DONE, "read"))
        _bound_memory()
        template = ChatTemplate.from_folder(folder)
        if template is not None:
            template.probe()
        text = TextModel(tokenizer, template)
    except ConfigurationError as error:
        _send(replies, (UNUSABLE, str(error)))
        return
    _send(replies, (DONE, "ready"))
    while header := requests.read(LENGTH.size):
        _send(replies, _reply(text, requests.read(*LENGTH.unpack(header))))


def _reply(text: TextModel, request: bytes) -> tuple[str, Any]:
    try:
        function, arguments = pickle.loads(request)  # the gateway's own words
        return DONE, function(text, *arguments)
    except InvalidRequest as error:
        return REFUSED, (error.field, str(error))
    except MemoryError:
        return REFUSED, ("prompt", f"the prompt takes over {_SPARE_BYTES >> 20} MiB to render and tokenize; shorten it")
    except Exception as error:  # noqa: BLE001  # of one request; the gateway logs it
        return FAILED, f"{type(error).__name__}: {error}"[:1000]


def _send(replies: BinaryIO, message: object) -> None:
    replies.write(frame(message))
    replies.flush()


def _leave_signals_to_the_gateway() -> None:
    # A drain needs workers to its end; the gateway kills them then, and the kernel if the gateway is killed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _bound_memory() -> None:
    if sys.platform == "linux":
        num_pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = num_pages * resource.getpagesize() + _SPARE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
