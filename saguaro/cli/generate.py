"""One answer of a gateway, streamed to stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from saguaro.cli.asking import exit_code_of
from saguaro.cli.connection import Connection
from saguaro.cli.interrupt import until_ctrl_c
from saguaro.cli.report import answer_json, answer_table
from saguaro.client import NO_RETRY, Answer, AnswerStream
from saguaro.client.requests import GenerateOptions
from saguaro.errors import InvalidRequest


def run_generate(prompt: str, *, gateway: Connection, raw: bool, as_json: bool, options: GenerateOptions) -> int:
    """Answer one prompt ("-" reads stdin); the exit code: 0, 2 for bad input, 1 for any other fault."""

    def answer() -> None:
        text = _read_stdin() if prompt == "-" else prompt
        answer_prompt(text, gateway=gateway, raw=raw, as_json=as_json, options=options)

    return exit_code_of("generate", gateway.address, answer)


def answer_prompt(prompt: str, *, gateway: Connection, raw: bool, as_json: bool, options: GenerateOptions) -> None:
    """Print the answer and its table, or only its JSON. Raises from the error tree."""
    messages: Sequence[Mapping[str, str]] = [{"role": "user", "content": prompt}]
    with (
        gateway.client(NO_RETRY) as client,
        client.generate(prompt if raw else messages, **options) as stream,
    ):
        if as_json:
            _finish(stream)
            _write_json(stream.results, with_rounds=options.get("include_rounds", False))
        elif options.get("n", 1) == 1:
            _write_text(stream)
        else:
            _write_choices(stream)


def _read_stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidRequest("prompt", f"the prompt on standard input is not UTF-8 text: {error}") from None


def _finish(stream: AnswerStream) -> None:
    for _ in until_ctrl_c(stream):
        pass


def _write_choices(stream: AnswerStream) -> None:
    _finish(stream)  # they come mixed; a terminal shows them one after another
    console = Console()
    for answer in stream.results:
        console.print(f"--- choice {answer.choice}", markup=False, highlight=False)
        sys.stdout.write(f"{answer.text}\n\n")
        sys.stdout.flush()
        console.print(answer_table(answer))


def _write_text(stream: AnswerStream) -> None:
    for delta in until_ctrl_c(stream):
        sys.stdout.write(delta.text)
        sys.stdout.flush()
    sys.stdout.write("\n\n")
    sys.stdout.flush()
    console = Console()
    console.print(answer_table(stream.result))
    for item in answer_json(stream.result, with_rounds=True)["rounds"]:
        console.print(_round_line(item), markup=False, highlight=False, soft_wrap=True)


def _round_line(item: Mapping[str, Any]) -> str:
    times = ", ".join(f"{part} {item[part + '_ns'] / 1e6:.2f}" for part in ("wait", "verify", "accept", "drafting"))
    accepted = f"{item['num_accepted_tokens']}/{item['num_draft_tokens']} accepted"
    return f"round {item['round']}: {accepted}, {item['lookup']}; ms: {times}"


def _write_json(answers: Sequence[Answer], *, with_rounds: bool) -> None:
    """The one answer; of several the first, and all of them as its "choices"."""
    documents = [answer_json(answer, with_rounds=with_rounds) for answer in answers]
    json.dump(documents[0] if len(documents) == 1 else documents[0] | {"choices": documents}, sys.stdout)
    sys.stdout.write("\n")
