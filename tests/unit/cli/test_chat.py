"""`saguaro chat` in a terminal of its own (a pty), and on a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from saguaro.answers import AnswerDelta
from saguaro.cli.chat_lines import Command, Message, UnknownCommand, read_line, read_seed
from saguaro.cli.provenance import ProvenancePrinter
from saguaro.types import TokenProvenance
from tests.unit.gateway.house import House, running_house
from tests.unit.gateway.text_folder import write_text_folder

ANSWER = "The saguaro 🌵 is größer."
COMMAND = [sys.executable, "-m", "saguaro.cli", "chat", "--server"]
SECONDS = 60.0
# In the child after its exec: code between fork and exec crashes where gRPC has threads.
TAKES_THE_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)  # what runs in the background of a shell ignores it
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text_folder(tmp_path_factory.mktemp("text"))


class Terminal:
    """A pty with the program on its other end, as the leader of a session, so that Ctrl-C reaches it."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKES_THE_TERMINAL, *COMMAND, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.screen = ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_for(self, text: str, times: int = 1) -> None:
        """Until the screen has shown it so often."""
        deadline = time.monotonic() + SECONDS
        while self.screen.count(text) < times:
            assert time.monotonic() < deadline, f"no {text!r} x {times} in {self.screen!r}"
            if select.select([self._ours], [], [], 0.1)[0]:
                try:
                    piece = os.read(self._ours, 65536)
                except OSError:  # the other end is closed
                    piece = b""
                assert piece, f"ended without {text!r}: {self.screen!r}"
                self.screen += piece.decode(errors="replace")

    def interrupt_until(self, text: str) -> None:
        """Ctrl-C, again where Python missed it: a signal between prompt and read is seen with the next key only."""
        deadline = time.monotonic() + SECONDS
        while text not in self.screen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.screen!r}"
            self.type("\x03")
            if select.select([self._ours], [], [], 2.0)[0]:
                self.screen += os.read(self._ours, 65536).decode(errors="replace")

    def wait_for_prompt(self) -> None:
        """Until it asks: a Ctrl-D that comes before is lost between the terminal's two modes."""
        while not re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.screen).endswith("> "):
            before = self.screen
            self.wait_for(" ", before.count(" ") + 1)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@contextlib.contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    opened = Terminal(*arguments)
    try:
        yield opened
    finally:
        opened.close()


def in_house(folder: Path, work: Callable[[House], Any], **house: Any) -> Any:
    async def scenario() -> Any:
        async with running_house(folder, ANSWER, context_limit=4096, **house) as running:
            return await asyncio.to_thread(work, running)

    return asyncio.run(scenario())


def prompts(house: House) -> list[str]:
    return [house.text.decode(list(request.prompt)) for request in house.verifier.requests]


def test_a_conversation_in_a_terminal(text_folder: Path) -> None:
    def work(house: House) -> None:
        with terminal(house.address, "--show-provenance", "--seed", "3") as chat:
            chat.wait_for("> ")
            chat.type("Hello\n")
            chat.wait_for("bonus")
            assert "\x1b[32m" in chat.screen, "accepted tokens are green"
            plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", chat.screen)
            assert ANSWER in plain
            assert re.search(r"tokens: \d+ accepted, 0 fallback, \d+ bonus, 0 plain", plain)
            chat.type("\x1b[A again\n")  # the arrow brings the last line back
            chat.wait_for("bonus", 2)
            chat.type("/stats\n")
            chat.wait_for("acceptance length")
            chat.type("/system Be brief.\n/reset\n/seed 12\n/help\n/nonsense\n")
            chat.wait_for("/nonsense is no command")
            chat.type("New\n")
            chat.wait_for("bonus", 3)
            chat.wait_for_prompt()
            chat.type("\x04")
            chat.process.wait(SECONDS)
            assert chat.process.returncode == 0
        first, second, third = prompts(house)
        assert first == "user\nHello\nassistant\n"
        assert second == f"user\nHello\nassistant\n{ANSWER}\nuser\nHello again\nassistant\n"
        assert third == "system\nBe brief.\nuser\nNew\nassistant\n"
        assert [request.sampling.seed for request in house.verifier.requests] == [3, 3, 12]

    in_house(text_folder, work)


def test_ctrl_c_stops_the_answer_and_what_came_of_it_stays_in_the_conversation(text_folder: Path) -> None:
    def work(house: House) -> None:
        with terminal(house.address) as chat:
            chat.wait_for("> ")
            chat.interrupt_until("Ctrl-D ends the chat")
            chat.wait_for_prompt()
            chat.type("Hello\n")
            chat.wait_for("The saguaro")
            chat.type("\x03")
            chat.wait_for("stopped")
            chat.type("And?\n")
            chat.wait_for("The saguaro", 2)
            chat.type("\x03")
            chat.wait_for("stopped", 2)
            chat.type("/quit\n")
            chat.process.wait(SECONDS)
            assert chat.process.returncode == 0
        _, second = prompts(house)
        assert second.startswith("user\nHello\nassistant\nThe saguaro")
        assert ANSWER not in second
        assert house.verifier.ended.is_set()

    in_house(text_folder, work, hang_after_runs=2)


def piped(address: str, lines: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, address, *arguments], input=lines, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def test_a_pipe_gets_the_answers_alone(text_folder: Path) -> None:
    def work(house: House) -> None:
        done = piped(house.address, "Hello\n\n//etc\n/quit\nnever\n", "--show-provenance")
        assert done.returncode == 0
        assert [line for line in done.stdout.splitlines() if not line.startswith("tokens: ")] == [ANSWER, ANSWER]
        assert "\x1b" not in done.stdout
        assert prompts(house)[1].endswith("user\n/etc\nassistant\n")

    in_house(text_folder, work)


def test_an_answer_that_fails_on_a_pipe_is_told_and_is_the_exit_code(text_folder: Path) -> None:
    def work(house: House) -> None:
        done = piped(house.address, "Hello\n", "--max-tokens", "5", "--model", "other")
        assert (done.returncode, done.stdout) == (1, "")
        assert 'no model "other" here' in done.stderr
        nobody = piped("127.0.0.1:1", "Hello\n")
        assert nobody.returncode == 1
        assert "the gateway at 127.0.0.1:1 cannot be reached" in nobody.stderr

    in_house(text_folder, work)


def test_lines_are_messages_or_commands() -> None:
    assert read_line("  Hi / there \n") == Message("Hi / there")
    assert read_line("//stats") == Message("/stats")
    assert read_line(" \n") is None
    assert read_line("/system Be  brief. ") == Command("system", "Be  brief.")
    assert (read_seed(""), read_seed("7")) == (None, 7)
    for bad in ("-1", "x", str(1 << 64)):
        with pytest.raises(UnknownCommand, match="it must be from 0"):
            read_seed(bad)


def test_each_token_has_the_colour_of_where_it_came_from() -> None:
    console = Console(force_terminal=True, color_system="standard", width=80)
    kinds = (TokenProvenance.CACHED_DRAFT, TokenProvenance.NGRAM_DRAFT, TokenProvenance.BONUS, TokenProvenance.PLAIN)
    printer = ProvenancePrinter(console)
    with console.capture() as captured:
        printer.print(AnswerDelta("aabbb🌵d", (1, 2, 3, 4), kinds, text_lengths=(2, 3, 1, 1)))
        printer.print(AnswerDelta("!", (), ()))
    assert captured.get() == "\x1b[32maa\x1b[0m\x1b[33mbbb\x1b[0m\x1b[36m🌵\x1b[0md!"
    assert printer.summary().plain == "tokens: 1 accepted, 1 fallback, 1 bonus, 1 plain"
