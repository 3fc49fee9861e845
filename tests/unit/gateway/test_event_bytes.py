"""What an event of a stream looks like on the wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI

from gateway.http.transfer import encoded, sse
from tests.unit.gateway.house import House
from tests.unit.gateway.test_http import in_house

# Wherever some client may see the end of a line, and what has no place in text.
TEARING = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei\x7fj\x9fk\nl\rm"


@given(st.text(max_size=30) | st.sampled_from([TEARING]), st.integers(0, 9) | st.none())
def test_an_event_is_one_line_for_every_client_and_its_json_is_what_it_was(text: str, event_id: int | None) -> None:
    event = sse(encoded({"text": text}), event_id)
    lines = event.decode().splitlines()
    assert lines[-1] == ""
    assert len(lines) == (2 if event_id is None else 3)
    assert json.loads(lines[-2].removeprefix("data: ")) == {"text": text}
    assert all(character.isprintable() or character in "\n" or ord(character) > 0x9F for character in event.decode())


def test_halves_of_surrogate_pairs_tear_no_stream() -> None:
    assert json.loads(sse(encoded({"text": "a\ud800"}))[6:]) == {"text": "a\ud800"}


def test_a_stream_whose_answer_has_line_separators_is_read_whole(text_folder: Path) -> None:
    async def work(house: House, client: AsyncOpenAI) -> None:
        arguments: Any = {"model": "fake", "prompt": "Hi", "max_tokens": 60}
        stream = await client.completions.create(**arguments, stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == TEARING
        async with client.completions.with_streaming_response.create(**arguments, stream=True) as response:
            raw = (await response.read()).decode()
        assert all(line == "" or line.startswith("data: ") for line in raw.splitlines())

    in_house(text_folder, work, answer=TEARING)
