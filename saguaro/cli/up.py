"""Starts a trio, watches over it, ends it."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from typing import NoReturn

from rich.console import Console

from saguaro.cli.banner import banner
from saguaro.cli.connection import Connection
from saguaro.cli.display import Display
from saguaro.cli.generate import answer_prompt
from saguaro.cli.trio import ServiceDied, Trio
from saguaro.cli.wiring import TrioOptions, Wiring
from saguaro.client.requests import GenerateOptions
from saguaro.errors import ConfigurationError, SaguaroError

_LOOK_SECONDS = 0.2


def run_up(options: TrioOptions) -> int:
    """Serve until Ctrl-C or SIGTERM: exit code 0. The last verifier or the gateway that dies ends all: exit code 1."""
    with _reported() as codes, Display(Console(stderr=True)) as display:
        wiring = Wiring(options)
        with _trio(wiring, display) as trio:
            display.stop_bars()
            for line in banner(trio, wiring.gateway):
                display.say(line)
            _watch(trio, display)
    return codes[0]


def _trio(wiring: Wiring, display: Display) -> Trio:
    """A trio that is not started yet, shown by `display`."""
    for line in wiring.not_used:
        display.say(f"saguaro: {line}")
    return Trio(**wiring.arguments, on_line=display.on_line, on_progress=display.on_progress)


def run_demo(options: TrioOptions, prompt: str, generate: GenerateOptions, api_key: str | None = None) -> int:
    """Trio up, one answer and its table, trio down."""
    with (
        _reported() as codes,
        Display(Console(stderr=True), quiet=True) as display,
        _trio(Wiring(options), display) as trio,
    ):
        display.stop_bars()
        display.say(f"> {prompt}")
        gateway = Connection(trio.gateway_address, api_key)
        answer_prompt(prompt, gateway=gateway, raw=False, as_json=False, options=generate)
    return codes[0]


@contextlib.contextmanager
def gateway_of(services: Connection | TrioOptions, api_key: str | None = None) -> Iterator[Connection]:
    """A gateway that runs, or that of a trio that lives as long as the block, asked with `api_key`."""
    if isinstance(services, Connection):
        yield services
        return
    with Display(Console(stderr=True), quiet=True) as display, _trio(Wiring(services), display) as trio:
        display.stop_bars()
        yield Connection(trio.gateway_address, api_key)


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
