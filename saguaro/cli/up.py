"""Starts a trio, watches over it, ends it."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from saguaro.cli.connection import Connection
from saguaro.cli.display import Display
from saguaro.cli.generate import answer_prompt
from saguaro.cli.trio import Ports, ServiceDied, Trio
from saguaro.client.requests import GenerateOptions
from saguaro.errors import ConfigurationError, SaguaroError

_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class TrioOptions:
    """What the commands that start a trio let a user choose."""

    target: str = "demo-target"
    draft: str | None = "demo-draft"
    emulate: str | None = None
    threads: str = "auto"
    lookahead: int | None = None
    budget: int | None = None
    policy: str | None = None
    config: Path | None = None
    ports: Ports | None = field(default_factory=Ports)
    num_verifiers: int = 1  # on free ports; others say how many they are

    def trio(self, display: Display) -> Trio:
        """A trio that is not started yet, shown by `display`."""
        shared = [] if self.config is None else ["--config", str(self.config)]
        verifier = list(shared)
        for flag, value in (("--lookahead", self.lookahead), ("--budget", self.budget), ("--policy", self.policy)):
            if value is not None:
                verifier += [flag, str(value)]
        return Trio(
            target=self.target,
            draft=self.draft,
            emulate=self.emulate,
            ports=self.ports,
            num_verifiers=self.num_verifiers,
            threads=self.threads,
            verifier_flags=verifier,
            speculator_flags=shared,
            gateway_flags=shared,
            on_line=display.on_line,
            on_progress=display.on_progress,
        )


def run_up(options: TrioOptions) -> int:
    """Serve until Ctrl-C or SIGTERM: exit code 0. The last verifier or the gateway that dies ends all: exit code 1."""
    with _reported() as codes, Display(Console(stderr=True)) as display, options.trio(display) as trio:
        display.stop_bars()
        display.say("saguaro is up; Ctrl-C ends it")
        for role in trio.processes:
            display.say(f"  {role:<11} {trio.address(role)}")
        display.say(f"  {'OpenAI API':<11} {trio.http_url}")
        if trio.gateway_address.endswith(f":{Ports().gateway}"):
            display.say('ask it: saguaro generate "What is a saguaro?"')
        else:
            display.say(f'ask it: saguaro generate --address {trio.gateway_address} "What is a saguaro?"')
        _watch(trio, display)
    return codes[0]


def run_demo(options: TrioOptions, prompt: str, generate: GenerateOptions) -> int:
    """Trio up, one answer and its table, trio down."""
    with _reported() as codes, Display(Console(stderr=True), quiet=True) as display, options.trio(display) as trio:
        display.stop_bars()
        display.say(f"> {prompt}")
        answer_prompt(prompt, gateway=Connection(trio.gateway_address), raw=False, as_json=False, options=generate)
    return codes[0]


@contextlib.contextmanager
def gateway_of(services: str | TrioOptions) -> Iterator[str]:
    """Address of a gateway: that of running services, or of a trio that lives as long as the block."""
    if isinstance(services, str):
        yield services
        return
    with Display(Console(stderr=True), quiet=True) as display, services.trio(display) as trio:
        display.stop_bars()
        yield trio.gateway_address


def _watch(trio: Trio, display: Display) -> None:
    """Until interrupted, or until a service dies without which there is nothing to serve."""
    mourned: set[str] = set()
    while True:
        trio.check_alive()
        for name, process in trio.processes.items():
            if name not in mourned and process.exit_code is not None:
                mourned.add(name)
                goes_on = "undrafted, with the same tokens, slower" if name == "speculator" else "with the others"
                display.say(f"the {name} ended with {process.describe_end()}: the trio goes on {goes_on}")
        time.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def _reported() -> Iterator[list[int]]:
    """Turns the ways to end into an exit code, the one element of what it yields, and one sentence on stderr."""
    codes = [0]
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield codes
    except KeyboardInterrupt:
        pass
    except ConfigurationError as error:
        codes[0] = _fail(str(error), 2)
    except (ServiceDied, SaguaroError) as error:
        codes[0] = _fail(str(error), 1)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(number: int, frame: object) -> NoReturn:
    # The same way out as Ctrl-C.
    raise KeyboardInterrupt


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"saguaro: {message}\n")
    return code
