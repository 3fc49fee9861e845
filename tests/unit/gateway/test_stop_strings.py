"""Stop strings in text that comes in pieces: the end does not depend on the pieces, and nothing beyond it comes out."""

from __future__ import annotations

import random

import pytest

from gateway.stop_strings import StopStrings


def run(pieces: list[str], *stop: str, may_end_from: int = 0) -> tuple[str, bool]:
    watch = StopStrings(stop)
    out = ""
    for index, piece in enumerate(pieces):
        out += watch.push(piece, may_end=index >= may_end_from)
        if watch.is_reached:
            return out, True
    return out + watch.flush(), False


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("one two three", ["two"], "one "),
        ("one two three", ["four"], None),
        ("aaab", ["aab"], "a"),  # a failed beginning holds the real one
        ("abcabd", ["abd"], "abc"),
        ("xyz", ["xyz"], ""),
        ("a.b,c", [",", "."], "a"),
        ("hello world", ["world", "lo"], "hel"),
        ("hello", ["ello", "lo"], "h"),  # complete at the same character: the longest
        ("ab", ["abc", "b"], "a"),  # the shorter one is complete first
        ("größer 🌵 als", ["🌵"], "größer "),
    ],
)
def test_text_ends_before_the_first_complete_string_however_it_is_cut(
    text: str, stop: list[str], expected: str | None
) -> None:
    generator = random.Random(1)
    for _ in range(50):
        cuts = sorted(generator.sample(range(len(text) + 1), k=generator.randint(0, len(text))))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert run(pieces, *stop) == ((text, False) if expected is None else (expected, True))


def test_only_what_may_become_a_stop_string_is_held_back() -> None:
    watch = StopStrings(["</end>"])
    assert watch.push("text <", may_end=True) == "text "
    assert watch.push("/", may_end=True) == ""
    assert watch.push("b> <", may_end=True) == "</b> "
    assert watch.flush() == "<"


def test_a_string_complete_too_early_does_not_count_and_one_that_begins_early_and_ends_in_time_does() -> None:
    assert run(["one.", "two."], ".", may_end_from=1) == ("one.two", True)
    assert run(["one<", "e>two"], "<e>", may_end_from=1) == ("one", True)
    assert run(["one<e>", "two"], "<e>", may_end_from=1) == ("one<e>two", False)
