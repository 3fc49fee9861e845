"""The examples in the SDK's docstrings and page do what they say, against a real gateway."""

from __future__ import annotations

import asyncio
import doctest
from pathlib import Path

import pytest

import saguaro.client
from saguaro.client import aio, sync
from tests.unit.gateway.house import running_house

DEFAULT = "127.0.0.1:50051"
PAGE = Path(__file__).parents[3] / "docs" / "client.md"


def examples() -> list[doctest.DocTest]:
    found = [
        test
        for module in (saguaro.client, sync, aio)
        for test in doctest.DocTestFinder().find(module, module.__name__, extraglobs={"asyncio": asyncio})
        if test.examples
    ]
    return [*found, doctest.DocTestParser().get_doctest(PAGE.read_text(), {}, PAGE.name, str(PAGE), 0)]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # clients of examples live until they are collected
def test_the_examples_do_what_they_say(text_folder: Path) -> None:
    def run(address: str) -> int:
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        for test in examples():
            for example in test.examples:
                example.source = example.source.replace(DEFAULT, address)
            runner.run(test)
        result = runner.summarize()
        assert result.failed == 0
        return result.attempted

    async def scenario() -> int:
        async with running_house(text_folder, "It stands still.", name="demo-target") as house:
            return await asyncio.to_thread(run, house.address)

    assert asyncio.run(scenario()) > 15
