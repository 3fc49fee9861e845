"""A few processes that render chat templates and tokenize, so that neither can hold up the event loop.

Templates come from strangers and may loop for ever, and tokenizers hold Python's lock while they work through a long
text. A worker that takes too long is killed; the next request that needs one starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from gateway.text import TextModel
from gateway.text_worker import DONE, LENGTH, REFUSED, UNUSABLE, frame
from saguaro.errors import ConfigurationError, DeadlineExceeded, InvalidRequest, SequenceFault, Unavailable

logger = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_LONG_BYTES = 65536  # from here on a text may keep a worker for more than some milliseconds
_READ_SECONDS = 120.0  # for a worker's start, without its chat template
_MAX_WAITING = 1024  # requests without a worker; each holds its prompt


class TextWorkers:
    """Up to `num_workers` processes with the text side of the model in `folder`, each request at most `max_seconds`.

    Long texts never take all of them, unless there is one alone: short prompts do not wait behind long ones.
    """

    def __init__(self, folder: Path, *, num_workers: int, max_seconds: float) -> None:
        self._folder = folder
        self._max_seconds = max_seconds
        self._num_workers = num_workers
        self._any = asyncio.Semaphore(num_workers)
        self._long = asyncio.Semaphore(max(num_workers - 1, 1))
        self._num_waiting = 0
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._asking: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """All workers, with the chat template tried. Raises ConfigurationError for a folder that cannot be served."""
        self._idle += await asyncio.gather(*(self._started() for _ in range(self._num_workers)))

    async def run(
        self,
        function: Callable[Concatenate[TextModel, Parameters], Result],
        num_bytes: int,
        *arguments: Parameters.args,
        **_: Parameters.kwargs,
    ) -> Result:
        """What `function(text_model, *arguments)` returns in a worker; `num_bytes` is about how long its text is.

        `function` is one of a module. Raises InvalidRequest where it does, DeadlineExceeded after `max_seconds`,
        Unavailable where no worker is free in that time, SequenceFault where it fails.
        """
        lanes = [self._long, self._any] if num_bytes >= _LONG_BYTES else [self._any]
        await self._enter(lanes)
        # Once begun, it goes on without its caller, up to max_seconds: to start a process takes longer than most texts.
        asking = asyncio.create_task(self._ask(frame((function, arguments))))
        self._asking.add(asking)

        def leave(ended: asyncio.Task[Any]) -> None:
            self._asking.discard(ended)
            for lane in lanes:
                lane.release()
            if not ended.cancelled():
                ended.exception()  # its caller may have gone

        asking.add_done_callback(leave)
        result: Result = await asyncio.shield(asking)
        return result

    async def close(self) -> None:
        """Kills the workers, whatever they do."""
        for asking in self._asking:
            asking.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        await asyncio.gather(*(worker.kill() for worker in self._workers))
        self._workers.clear()
        self._idle.clear()

    async def _enter(self, lanes: list[asyncio.Semaphore]) -> None:
        if self._num_waiting >= _MAX_WAITING:
            raise Unavailable(f"{self._num_waiting} prompts wait to be tokenized; no more can wait")
        entered: list[asyncio.Semaphore] = []
        self._num_waiting += 1
        try:
            async with asyncio.timeout(self._max_seconds):
                for lane in lanes:
                    await lane.acquire()
                    entered.append(lane)
        except BaseException as error:
            for lane in entered:
                lane.release()
            if isinstance(error, TimeoutError):
                raise Unavailable(f"no process was free to tokenize the prompt for {self._max_seconds:g} s") from None
            raise
        finally:
            self._num_waiting -= 1

    async def _ask(self, request: bytes) -> Any:
        worker = await self._free()
        try:
            async with asyncio.timeout(self._max_seconds):
                outcome, value = await worker.ask(request)
        except TimeoutError:
            await self._drop(worker)
            raise DeadlineExceeded(
                f"the prompt was not rendered and tokenized within {self._max_seconds:g} s, which is this gateway's "
                f"setting text_seconds; shorten the prompt"
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._drop(worker)
            raise SequenceFault("the process that rendered and tokenized the prompt has died; shorten it") from None
        except BaseException:
            await self._drop(worker)
            raise
        self._idle.append(worker)
        if outcome == DONE:
            return value
        if outcome == REFUSED:
            raise InvalidRequest(*value)
        raise SequenceFault(f"the prompt could not be rendered and tokenized: {value}")

    async def _free(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            await self._drop(worker)
        return await self._started()

    async def _started(self) -> _Worker:
        worker = await _Worker.spawn(self._folder)
        self._workers.add(worker)
        try:
            await worker.hear(_READ_SECONDS, "the tokenizer was not read")
            await worker.hear(self._max_seconds, "the model's chat template did not render one short message")
        except BaseException:
            await self._drop(worker)
            raise
        return worker

    async def _drop(self, worker: _Worker) -> None:
        self._workers.discard(worker)
        await worker.kill()


class _Worker:
    """One process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def spawn(cls, folder: Path) -> _Worker:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway.text_worker", str(folder),
                stdin=PIPE, stdout=PIPE, env=os.environ | {"PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "false"},
            )
        )  # fmt: skip

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def ask(self, request: bytes) -> tuple[str, Any]:
        """The reply to a frame."""
        assert self._process.stdin is not None
        self._process.stdin.write(request)
        await self._process.stdin.drain()
        return await self._read()

    async def hear(self, max_seconds: float, otherwise: str) -> None:
        """Waits for word of one step of the start. Raises ConfigurationError where it cannot be taken."""
        try:
            async with asyncio.timeout(max_seconds):
                outcome, value = await self._read()
        except TimeoutError:
            raise ConfigurationError(f"{otherwise} within {max_seconds:g} s") from None
        except asyncio.IncompleteReadError:
            raise ConfigurationError(f"{otherwise}: the process died; its messages are above") from None
        if outcome == UNUSABLE:
            raise ConfigurationError(value)

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()

    async def _read(self) -> tuple[str, Any]:
        assert self._process.stdout is not None
        (length,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
        reply: tuple[str, Any] = pickle.loads(await self._process.stdout.readexactly(length))
        return reply
