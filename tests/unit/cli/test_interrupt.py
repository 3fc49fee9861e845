"""Ctrl-C while `saguaro generate` reads an answer."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.unit.gateway.house import running_house
from tests.unit.gateway.text_folder import write_text_folder

SECONDS = 60.0


@pytest.mark.parametrize("flags", [[], ["--json"], ["--n", "2"]], ids=["text", "json", "choices"])
def test_ctrl_c_ends_the_answer_here_and_at_the_verifier_without_a_word(tmp_path: Path, flags: list[str]) -> None:
    async def scenario() -> tuple[int | None, bytes]:
        folder = write_text_folder(tmp_path)
        async with running_house(folder, "The saguaro stands.", context_limit=4096, hang_after_runs=2) as house:
            command = [sys.executable, "-m", "saguaro.cli", "generate", "--address", house.address, *flags, "Hello"]
            process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
            try:
                await asyncio.wait_for(house.verifier.hangs.wait(), SECONDS)
                while process.returncode is None:  # lost where it falls before the answer is read, in the background
                    process.send_signal(signal.SIGINT)
                    await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=SECONDS / 6)
                await asyncio.wait_for(house.verifier.ended.wait(), SECONDS)
            finally:
                if process.returncode is None:
                    process.kill()
                _, errors = await process.communicate()
            return process.returncode, errors

    assert asyncio.run(scenario()) == (130, b"")
