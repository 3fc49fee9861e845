"""What a user types in a chat: a message, or a command that begins with a slash."""

from __future__ import annotations

from dataclasses import dataclass

HELP = """\
/stats          speed and speculation of the last answer and of all
/reset          forget the conversation; the system prompt stays
/system TEXT    speak to the model before the conversation; without TEXT: no more
/seed N         same seed and words, same answers; without N: random
/help           this
/quit           end; so does Ctrl-D. Ctrl-C stops an answer
//TEXT          the message "/TEXT\""""

COMMANDS = ("stats", "reset", "system", "seed", "help", "quit")


@dataclass(frozen=True, slots=True)
class Message:
    """To the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """To the program. `name` is one of COMMANDS."""

    name: str
    argument: str


class UnknownCommand(Exception):
    """A line that begins like a command and is none."""


def read_line(line: str) -> Message | Command | None:
    """None for a blank line. Raises UnknownCommand, with a sentence."""
    text = line.strip()
    if not text:
        return None
    if text.startswith("//"):
        return Message(text[1:])
    if not text.startswith("/"):
        return Message(text)
    name, _, argument = text[1:].partition(" ")
    if name not in COMMANDS:
        known = ", ".join(f"/{command}" for command in COMMANDS)
        raise UnknownCommand(f"/{name} is no command; there are {known}")
    return Command(name, argument.strip())


def read_seed(argument: str) -> int | None:
    """None for random. Raises UnknownCommand for what is no seed."""
    if not argument:
        return None
    if not (argument.isascii() and argument.isdecimal() and int(argument) < 1 << 64):
        raise UnknownCommand(f'the seed is "{argument}"; it must be from 0 to 2**64 - 1')
    return int(argument)
