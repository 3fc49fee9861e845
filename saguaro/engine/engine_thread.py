"""A thread of its own for the work that must not hold up the event loop."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
from collections.abc import Callable

from saguaro.engine.block_manager import OutOfBlocks
from saguaro.engine.step_watch import StepWatch
from saguaro.errors import Unavailable

log = logging.getLogger(__name__)

_SWITCH_SECONDS = 0.0001
_PROBE_SECONDS = 1.0  # between two tries whether the model works again


class EngineThread:
    """Calls `step` again and again; `step` says how long there is nothing to do.

    `step` returns the seconds to sleep at most (0 for none, None until woken). A fault of `step` is logged and given to
    `on_fault`, and the thread goes on, unless `probe` raises too: then the model does not work, `on_fault` gets
    Unavailable, again whenever somebody wakes the thread, and no step is made until `probe` succeeds. A fault of
    `on_fault` ends the thread: `fault` says so. Use `start` and `stop`.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float | None],
        on_fault: Callable[[Exception], None],
        *,
        probe: Callable[[], None] = lambda: None,
        watch: StepWatch | None = None,
    ) -> None:
        self._step = step
        self._on_fault = on_fault
        self._probe = probe
        self._watch = watch or StepWatch()
        self._woken = threading.Event()
        self._stopping = False
        self._failing_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.fault: BaseException | None = None  # what ended the thread before its time

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

    @property
    def trouble(self) -> tuple[str, float] | None:
        """Why nothing can be expected of the engine now, and for how many seconds so far; None while all is well."""
        if self.fault is not None:
            return f"the engine thread {self._thread.name} has ended: {self.fault!r}", 0.0
        if self._failing_since is not None:
            return "the model's forwards fail", time.monotonic() - self._failing_since
        overdue = self._watch.overdue_seconds
        return (f"a step of {self._thread.name} hangs", overdue) if overdue else None

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._woken.clear()
                sleep_seconds = self._stepped()
                if sleep_seconds != 0:
                    self._woken.wait(sleep_seconds)
        except BaseException as fault:
            log.critical("engine thread %s ends: a fault could not be handled", self._thread.name, exc_info=True)
            self.fault = fault

    def _stepped(self) -> float | None:
        self._watch.begin_step()
        try:
            return self._step()
        except Exception as error:  # whatever a step meets, the other sequences must go on
            log.exception("a step failed")
            self._recover(error)
            return 0
        finally:
            self._watch.end_step()

    def _recover(self, error: Exception) -> None:
        if not isinstance(error, Unavailable) and self._works():
            self._on_fault(error)
            return
        self._failing_since = time.monotonic()
        log.error("the model does not work: nothing is served until a forward succeeds")
        while not self._stopping:
            self._on_fault(Unavailable("the model's forwards fail on this machine"))
            if self._works():
                log.warning("the model works again after %.1f s", time.monotonic() - self._failing_since)
                break
            self._watch.end_step()
            self._woken.wait(_PROBE_SECONDS)
            self._woken.clear()
        self._failing_since = None

    def _works(self) -> bool:
        self._watch.begin_step()
        try:
            self._probe()
        except OutOfBlocks:
            return True  # nothing says otherwise
        except Exception as error:  # noqa: BLE001  # that is the question
            log.warning("a forward to try the model failed: %s", error)
            return False
        return True
