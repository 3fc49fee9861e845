"""Ctrl-C while an answer is read."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

from saguaro.answers import AnswerDelta
from saguaro.client import AnswerStream


def until_ctrl_c(stream: AnswerStream) -> Iterator[AnswerDelta]:
    """The deltas of `stream`; Ctrl-C cancels the answer, and KeyboardInterrupt is raised behind the last delta.

    An exception out of a signal handler may fall between any two steps of code that holds a lock, which then stays
    held. So the handler only writes a byte, and a thread that waits for it cancels. Not in the main thread, to which
    signals come, the deltas alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield from stream
        return
    pressed = False
    ours, theirs = os.pipe()

    def press(number: int, frame: object) -> None:
        nonlocal pressed
        pressed = True
        os.write(theirs, b"c")

    def cancel() -> None:
        if os.read(ours, 1):
            stream.cancel()

    waiting = threading.Thread(target=cancel, name="ctrl-c", daemon=True)
    waiting.start()
    before = signal.signal(signal.SIGINT, press)
    try:
        yield from stream
        if pressed:
            raise KeyboardInterrupt
    finally:
        signal.signal(signal.SIGINT, before)
        os.close(theirs)
        waiting.join()
        os.close(ours)
