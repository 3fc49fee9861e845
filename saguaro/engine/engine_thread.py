"""A thread of its own for the work that must not hold up the event loop."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

_SWITCH_SECONDS = 0.0001


class EngineThread:
    """Calls `step` again and again; `step` says how long there is nothing to do.

    `step` returns the seconds to sleep at most (0 for none, None until woken). A fault of `step` is logged and given to
    `on_fault`; the thread goes on. Use as a context manager, or `start` and `stop`.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float | None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._step = step
        self._on_fault = on_fault
        self._woken = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to step. What is loaded by now is taken to live as long as the process."""
        # The collector need not walk through the weights' objects in the midst of a step, and between kernels, where
        # the interpreter is handed over, the engine must not wait the usual 5 ms to get it back.
        gc.collect()
        gc.freeze()
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._thread.start()

    def wake(self) -> None:
        """There may be something to do. From any thread; may come before `start`."""
        self._woken.set()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """End after the step in work. Raises TimeoutError if that step does not end in time."""
        self._stopping = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
            if self._thread.is_alive():
                raise TimeoutError(f"engine thread {self._thread.name} is still in a step after {timeout_seconds} s")

    def _run(self) -> None:
        while not self._stopping:
            self._woken.clear()
            try:
                sleep_seconds = self._step()
            except Exception as error:  # whatever a step meets, the other sequences must go on
                log.exception("a step failed")
                self._on_fault(error)
                continue
            if sleep_seconds != 0:
                self._woken.wait(sleep_seconds)
