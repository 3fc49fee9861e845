"""Services that take small messages only: what is larger comes in parts, or is refused alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from saguaro.cli.trio import Trio
from saguaro.client import Answer, AsyncClient
from saguaro.errors import InvalidRequest
from tests.integration.emulated import PROFILE

PROMPT = [65 + index % 26 for index in range(2000)]  # its logprobs have some 400 kB


async def whole(client: AsyncClient, prompt: list[int], **options: object) -> Answer:
    return await client.generate(prompt, **options).finish()  # type: ignore[arg-type]


@pytest.mark.parametrize("small", ["verifier_flags", "gateway_flags"])
def test_one_request_s_size_is_its_own_affair(tmp_path: Path, small: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(PROFILE.format(faults="", target_ms=5.0))
    flags = {small: ["--max-message-bytes", "65536"]}

    async def scenario(address: str) -> None:
        async with AsyncClient(address) as client:
            plain = {"max_tokens": 150, "ignore_eos": True}
            others = [asyncio.create_task(whole(client, [70, 71, index], **plain)) for index in range(65, 69)]
            asked = whole(client, PROMPT, max_tokens=4, prompt_logprobs=True, logprobs=True, top_logprobs=5)
            if small == "verifier_flags":
                long = await asked
                assert len(long.prompt_logprobs) == len(PROMPT) - 1
                assert all(len(item.top) == 5 for item in long.prompt_logprobs)
            else:  # the gateway sends them to its client as they are
                with pytest.raises(InvalidRequest, match="65536"):
                    await asked
            for answer in await asyncio.gather(*others):
                assert len(answer.token_ids) == 150

    with Trio(emulate=str(file), draft=None, log_folder=tmp_path, **flags) as trio:  # type: ignore[arg-type]
        asyncio.run(scenario(trio.gateway_address))
