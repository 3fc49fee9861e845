"""`saguaro chat`: a conversation in a terminal, or of lines from a pipe."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.console import Console

from saguaro.answers import ChatMessage
from saguaro.cli.chat_lines import HELP, Command, UnknownCommand, read_line, read_seed
from saguaro.cli.chat_stats import stats_table
from saguaro.cli.connection import Connection
from saguaro.cli.interrupt import until_ctrl_c
from saguaro.cli.provenance import ProvenancePrinter
from saguaro.client import Answer, AnswerStream, Client, Retry
from saguaro.client.requests import GenerateOptions
from saguaro.errors import SaguaroError

if TYPE_CHECKING:
    from saguaro.cli.wiring import TrioOptions

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130
_PROMPT = "> "


@dataclass(frozen=True, slots=True)
class Manner:
    """How a chat goes on; commands change it. `generate`: without the seed."""

    generate: GenerateOptions
    system: str = ""
    seed: int | None = None
    shows_provenance: bool = False


def run_chat(services: Connection | TrioOptions, manner: Manner, api_key: str | None = None) -> int:
    """The exit code: 0; 1 where there is no gateway, or an answer from a pipe failed; 130 interrupted before it began.

    `services` is a gateway that runs, or what trio to start; `api_key` is for the latter, should its settings ask for
    one.
    """
    try:
        return _at(services, manner) if isinstance(services, Connection) else _with_own(services, manner, api_key)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SaguaroError as error:
        return _fail(str(error))


def _with_own(services: TrioOptions, manner: Manner, api_key: str | None) -> int:
    # To start services takes more than the base package has; to talk to them does not.
    from saguaro.cli.trio import ServiceDied
    from saguaro.cli.up import gateway_of

    try:
        with gateway_of(services, api_key) as gateway:
            return _at(gateway, manner)
    except ServiceDied as error:
        return _fail(str(error))


def _at(gateway: Connection, manner: Manner) -> int:
    with gateway.client(Retry()) as client:
        [served] = client.list_models()
        chat = Chat(client, manner)
        chat.say(f"{served.model.name} at {gateway.address}; /help says what can be typed")
        return chat.run()


def _fail(message: str) -> int:
    sys.stderr.write(f"saguaro chat: {message}\n")
    return EXIT_FAILED


class Chat:
    """One conversation; it is kept here, and sent anew with every message."""

    def __init__(self, client: Client, manner: Manner) -> None:
        self._client = client
        self._manner = manner
        self._messages: list[ChatMessage] = []
        self._answers: list[Answer] = []
        self._is_interactive = sys.stdin.isatty()
        self._console = Console(highlight=False)

    def run(self) -> int:
        """Until the input ends, or /quit. The exit code."""
        code = EXIT_OK
        for line in self._lines():
            try:
                item = read_line(line)
                if isinstance(item, Command):
                    if item.name == "quit":
                        break
                    self._obey(item)
                elif item is not None:
                    self._answer(item.text)
            except UnknownCommand as error:
                self.say(str(error))
            except SaguaroError as error:
                self.say(f"saguaro chat: {error}")
                code = EXIT_OK if self._is_interactive else EXIT_FAILED
        return code

    def say(self, text: str) -> None:
        """A line of our own, on stderr, so that a pipe has the answers alone."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def _lines(self) -> Iterator[str]:
        if not self._is_interactive:
            if isinstance(sys.stdin, io.TextIOWrapper):
                sys.stdin.reconfigure(errors="surrogateescape")  # what is no UTF-8 is refused like any other bad input
            yield from sys.stdin
            return
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # input() edits lines and remembers them with it
        while True:
            try:
                yield input(_PROMPT)
            except EOFError:
                sys.stdout.write("\n")
                return
            except KeyboardInterrupt:
                self.say("\n/quit or Ctrl-D ends the chat")

    def _obey(self, command: Command) -> None:
        match command.name:
            case "help":
                self.say(HELP)
            case "stats" if self._answers:
                self._console.print(stats_table(self._answers))
            case "stats":
                self.say("nothing has been answered yet")
            case "reset":
                self._messages.clear()
                self.say("the conversation is forgotten")
            case "system":
                self._manner = replace(self._manner, system=command.argument)
                self.say("the system prompt is set" if command.argument else "there is no system prompt")
            case "seed":
                self._manner = replace(self._manner, seed=read_seed(command.argument))
                self.say(
                    f"the seed is {self._manner.seed}" if command.argument else "every answer has a seed of its own"
                )

    def _answer(self, text: str) -> None:
        """Print the answer to the next message. What of it came before Ctrl-C stays part of the conversation."""
        asked = [*self._messages, ChatMessage("user", text)]
        system = [ChatMessage("system", self._manner.system)] if self._manner.system else []
        options = self._manner.generate | GenerateOptions(
            seed=self._manner.seed, include_text_lengths=self._manner.shows_provenance
        )
        said: list[str] = []
        try:
            with self._client.generate([*system, *asked], **options) as stream:
                self._print(stream, said)
                self._answers.append(stream.result)
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            if not self._is_interactive:
                raise
            self.say("stopped")
        if said:
            self._messages = [*asked, ChatMessage("assistant", "".join(said))]

    def _print(self, stream: AnswerStream, said: list[str]) -> None:
        printer = ProvenancePrinter(self._console) if self._manner.shows_provenance else None
        for delta in until_ctrl_c(stream):
            said.append(delta.text)
            if printer is not None:
                printer.print(delta)
            else:
                sys.stdout.write(delta.text)
            sys.stdout.flush()
        sys.stdout.write("\n")
        sys.stdout.flush()
        if printer is not None:
            self._console.print(printer.summary())
