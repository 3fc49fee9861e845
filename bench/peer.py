"""The parent's side of `transformers_worker`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from bench.measured import Arrival, TimedAnswer
from saguaro.cli.trio import ServiceDied
from saguaro.types import TokenIds

# Its threads share the cores with whatever else runs. By default they spin at every barrier, which makes `generate`
# several times slower as soon as anything does; sleeping is the fairer peer. What the user has set stands.
PEER_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE"}

_STOP_SECONDS = 10.0


class TransformersPeer:
    """A context manager. The process starts at once and loads while others start, too; `wait_ready` waits for it."""

    def __init__(self, target: str, draft: str, threads: int) -> None:
        self._is_answering = True  # what it first says is that it is ready
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bench.transformers_worker", target, draft, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=PEER_ENVIRONMENT | os.environ,
            start_new_session=True,  # Ctrl-C is for the parent, which ends it
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died, with a request unread
            self._process.stdin.close()
        try:
            self._process.wait(0.0 if self._is_answering else _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def wait_ready(self) -> None:
        """Until both models are loaded; ServiceDied where they cannot be."""
        self._reply()

    def answer(
        self,
        prompts: Sequence[TokenIds],
        *,
        assisted: bool,
        assistant_tokens: int | None,
        max_tokens: int,
        temperature: float,
        seed: int,
        ignore_eos: bool,
        stop_at: float | None,
    ) -> tuple[TimedAnswer, ...]:
        """One turn; `assistant_tokens` None leaves that to transformers. Answers are cut short at `stop_at`.

        Times are of the monotonic clock, which all processes of a machine share.
        """
        request = {
            "prompts": [list(prompt) for prompt in prompts],
            "assisted": assisted,
            "assistant_tokens": assistant_tokens,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed,
            "ignore_eos": ignore_eos,
            "stop_at": stop_at,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return tuple(
            TimedAnswer(item["sent_at"], tuple(Arrival(at, count) for at, count in item["arrivals"]))
            for item in self._reply()
        )

    def _reply(self) -> Any:
        assert self._process.stdout is not None
        self._is_answering = True
        line = self._process.stdout.readline()
        self._is_answering = False
        if not line:
            self._errors.seek(0)
            raise ServiceDied(f"the transformers process ended\n{self._errors.read()[-2000:]}".rstrip())
        return json.loads(line)
