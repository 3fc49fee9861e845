"""`saguaro verify-exact`: running services or a trio of its own, a progress bar, a verdict, an exit code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from saguaro.cli.connection import Connection
from saguaro.cli.exactness import FALSE_ALARMS_ONE_IN, Verdict, verify
from saguaro.cli.trio import ServiceDied
from saguaro.cli.up import gateway_of
from saguaro.cli.wiring import TrioOptions
from saguaro.client import Client, Retry
from saguaro.client.requests import GenerateOptions
from saguaro.errors import InvalidRequest, SaguaroError, Unavailable
from saguaro.types import AcceptanceMode

EXIT_EQUAL, EXIT_DIFFERENT, EXIT_COULD_NOT_RUN, EXIT_INTERRUPTED = 0, 1, 2, 130
DEFAULT_PROMPTS = (
    "Explain why the sky is blue.",
    "Write a Python function that merges two sorted lists.",
    "A train leaves at 9:40 and arrives at 13:05. How long is the journey?",
    "Write a polite e-mail to a landlord about a broken heater.",
    "List ten facts about octopuses.",
    "Repeat the words one two three four, twenty times.",
    "Tell a story about a cactus that wanted to see the sea.",
    "What is the difference between a process and a thread?",
)
_ATTACH_SECONDS = 60.0
_LOOK_SECONDS = 0.1


def run_verify_exact(
    services: Connection | TrioOptions,
    prompts: Sequence[str],
    options: GenerateOptions,
    *,
    num_samples: int,
    as_json: bool,
    api_key: str | None = None,
) -> int:
    """The exit code: 0 equal, 1 different, 2 could not run, 130 interrupted.

    `services` is a gateway that runs, or what trio to start; `api_key` is for the latter. Nothing is proved where
    nothing was speculated: that is 2.
    """
    try:
        with gateway_of(services, api_key) as gateway, gateway.client(Retry()) as client:
            _wait_until_speculating(client)
            console = Console(stderr=True)
            with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
                task = progress.add_task("with speculation and without", total=len(prompts))
                verdict = verify(
                    client, prompts, options, num_samples, lambda done: progress.update(task, completed=done)
                )
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (SaguaroError, ServiceDied) as error:
        return _fail(str(error))
    return report(verdict, as_json=as_json)


def report(verdict: Verdict, *, as_json: bool) -> int:
    """Says what was found; returns the exit code."""
    if verdict.is_equal and not verdict.num_accepted_tokens:
        return _fail(f"no draft token was accepted among {verdict.num_tokens} tokens, so nothing was tried")
    if as_json:
        sys.stdout.write(json.dumps(as_document(verdict)) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in _lines(verdict))
    return EXIT_EQUAL if verdict.is_equal else EXIT_DIFFERENT


def as_document(verdict: Verdict) -> dict[str, Any]:
    """For programs. A divergence's token is null where the answer had ended, its gap where it is not known."""
    return {
        "equal": verdict.is_equal,
        "acceptance": verdict.acceptance.name.lower(),
        "num_prompts": verdict.num_prompts,
        "num_answers": verdict.num_answers,
        "num_tokens": verdict.num_tokens,
        "num_accepted_tokens": verdict.num_accepted_tokens,
        "divergences": [asdict(item) for item in verdict.divergences],
        "p_value": verdict.p_value if verdict.law_tests else None,
        "law_tests": [asdict(item) for item in verdict.law_tests],
    }


def read_prompts(file: Path | None) -> tuple[str, ...]:
    """One prompt a line, but for empty lines; for None the built-in ones. Raises InvalidRequest where there is none."""
    if file is None:
        return DEFAULT_PROMPTS
    prompts = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    if not prompts:
        raise InvalidRequest("prompts", f"{file} holds no prompt; write one a line")
    return prompts


def _lines(verdict: Verdict) -> Iterator[str]:
    yield (
        f"{verdict.num_prompts} prompts, {verdict.num_answers} answers, {verdict.num_tokens} tokens, "
        f"{verdict.num_accepted_tokens} of them accepted drafts; {verdict.acceptance.name.lower()} acceptance"
    )
    if verdict.acceptance is AcceptanceMode.REJECTION and verdict.law_tests:
        yield (
            f"{len(verdict.law_tests)} chi-square tests of the first tokens, smallest p times their number: "
            f"{verdict.p_value:.3g} (below 1/{FALSE_ALARMS_ONE_IN} means different)"
        )
        yield "equal: no sign of another law" if verdict.is_equal else "DIFFERENT: not the same law"
        return
    yield from map(str, verdict.divergences)
    count = len(verdict.divergences)
    yield "equal: the same tokens with speculation and without" if not count else f"DIFFERENT: {count} answers diverge"


def _wait_until_speculating(client: Client) -> None:
    """Raises Unavailable with the verifier's reason where it goes on without speculation."""
    deadline = time.monotonic() + _ATTACH_SECONDS
    while not (served := client.list_models()[0]).speculating:
        if time.monotonic() > deadline:
            raise Unavailable(f"nothing to verify: there is no speculation, since {served.not_speculating_reason}")
        time.sleep(_LOOK_SECONDS)


def _fail(message: str) -> int:
    sys.stderr.write(f"saguaro verify-exact: {message}\n")
    return EXIT_COULD_NOT_RUN
