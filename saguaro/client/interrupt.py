"""Ctrl-C while a thread waits for a message."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def ctrl_c_as_itself() -> Iterator[None]:
    """Raises KeyboardInterrupt where Ctrl-C came out as a RuntimeError.

    `threading.Condition.wait`, by which grpcio waits, gives its lock back before its `try`: interrupted between the
    two, the `with` around it fails for a lock that it no longer has, and that error hides the KeyboardInterrupt.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise
