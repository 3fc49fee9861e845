"""Chat templates that loop, print without end or print nothing: refused at start, later bounded in time and size."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from gateway.text import TextModel
from gateway.text_workers import TextWorkers
from saguaro.answers import ChatMessage
from saguaro.client import AsyncClient
from saguaro.client import ChatMessage as Message
from saguaro.errors import ConfigurationError, DeadlineExceeded, InvalidRequest
from tests.unit.gateway.house import FakeVerifier, running_house, serving, verifier_on
from tests.unit.gateway.text_folder import TEMPLATE, write_text_folder

LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
HANGS_WHEN_TOLD = "{% if 'hang' in messages[-1]['content'] %}" + LOOP + "{% endif %}" + TEMPLATE
FLOODS = "{% if 'flood' in messages[-1]['content'] %}" + LOOP.replace("{% endfor %}", "flood{% endfor %}", 1)
FLOODS += "{% endif %}" + TEMPLATE
SWELLS = "{% if 'swell' in messages[-1]['content'] %}{{ 'x' * 10000000000 }}{% endif %}" + TEMPLATE
PARTS = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}
{%- for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}
{{- eos_token + '\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}"""
USER_PARTS = TEMPLATE.replace(
    "message['content'] +", "(message['content'][0]['text'] if message['role'] == 'user' else message['content']) +"
)


@contextlib.asynccontextmanager
async def workers_in(folder: Path, max_seconds: float) -> AsyncIterator[TextWorkers]:
    workers = TextWorkers(folder, num_workers=1, max_seconds=max_seconds)
    try:
        yield workers
    finally:
        await workers.close()


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        (LOOP + TEMPLATE, r"did not render one short message within 2 s"),
        ("{{ 'x' * 10 }}", "prints nothing of a user's message, neither of text nor of a list of parts"),
        ("{% if %}", "does not compile"),
    ],
    ids=["loops", "mute", "broken"],
)
def test_a_template_that_cannot_serve_is_refused_at_the_start(tmp_path: Path, template: str, complaint: str) -> None:
    async def scenario() -> None:
        async with workers_in(write_text_folder(tmp_path, template), 2) as workers:
            with pytest.raises(ConfigurationError, match=complaint):
                await workers.start()

    asyncio.run(scenario())


@pytest.mark.parametrize("template", [PARTS, USER_PARTS], ids=["all roles", "users"])
def test_templates_that_want_parts_get_parts(tmp_path: Path, template: str) -> None:
    text = TextModel.from_folder(write_text_folder(tmp_path, template))
    chat = [ChatMessage("system", "Be brief."), ChatMessage("user", "Why?"), ChatMessage("assistant", "Why not?")]
    plain = TextModel.from_folder(write_text_folder(tmp_path, TEMPLATE))
    assert text.render([*chat, ChatMessage("user", "So?")]) == plain.render([*chat, ChatMessage("user", "So?")])


def test_a_template_that_hangs_on_one_chat_costs_that_chat_its_time_and_nobody_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = write_text_folder(tmp_path, HANGS_WHEN_TOLD)
        async with running_house(folder, num_workers=2, text_seconds=5) as house, AsyncClient(house.address) as client:
            hanging = asyncio.create_task(client.generate([Message("user", "hang")]).finish())
            assert (await client.generate([Message("user", "Hi")]).finish()).text
            assert not hanging.done()
            with pytest.raises(DeadlineExceeded, match=r"not rendered and tokenized within 5 s.*text_seconds"):
                await hanging
            assert (await client.generate([Message("user", "Hi")]).finish()).text

    asyncio.run(scenario())


def test_a_request_s_own_timeout_covers_the_template(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = write_text_folder(tmp_path, HANGS_WHEN_TOLD)
        async with (
            running_house(folder, text_seconds=60) as house,
            httpx2.AsyncClient(base_url=house.http_url) as client,
        ):
            body = {"model": "fake", "messages": [{"role": "user", "content": "hang"}], "timeout": 0.5}
            answer = await client.post("/v1/chat/completions", json=body, timeout=30)
            assert (answer.status_code, answer.json()["error"]["type"]) == (504, "timeout_error")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("template", "word", "complaint"),
    [(FLOODS, "flood", r"makes over \d+ bytes of these messages; the context limit is 64"), (SWELLS, "swell", "takes")],
)
def test_what_a_template_writes_is_bounded(tmp_path: Path, template: str, word: str, complaint: str) -> None:
    async def scenario() -> None:
        folder = write_text_folder(tmp_path, template)
        async with running_house(folder) as house, AsyncClient(house.address) as client:
            with pytest.raises(InvalidRequest, match=complaint):
                await client.generate([Message("user", word)]).finish()
            assert (await client.generate([Message("user", "Hi")]).finish()).text

    asyncio.run(scenario())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_gateway_even_while_a_template_hangs(tmp_path: Path, end: signal.Signals) -> None:
    async def scenario() -> None:
        folder = write_text_folder(tmp_path, HANGS_WHEN_TOLD)
        vocabulary = TextModel.from_folder(folder).vocabulary_size
        fake = FakeVerifier(answer=(5, 1), vocabulary_size=vocabulary)
        async with serving(verifier_on(0, fake)) as verifier:
            port = _free_port()
            flags = [
                "--verifier",
                verifier.address,
                "--tokenizer",
                str(folder),
                "--port",
                "0",
                "--http-port",
                str(port),
            ]
            flags += ["--drain-seconds", "0.5", "--text-seconds", "300"]
            gateway = await asyncio.create_subprocess_exec(sys.executable, "-m", "gateway", *flags)
            try:
                async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                    await asyncio.wait_for(_ready(client), 60)
                    workers = _children(gateway.pid)
                    assert len(workers) == 2
                    body = {"model": "fake", "messages": [{"role": "user", "content": "hang"}]}
                    asking = asyncio.create_task(client.post("/v1/chat/completions", json=body))
                    while not any(_cpu_ticks(pid) > 100 for pid in workers):  # a second: one is in the loop
                        assert not asking.done()
                        await asyncio.sleep(0.05)
                    gateway.send_signal(end)
                    await asyncio.wait_for(gateway.wait(), 20)
                    await asyncio.gather(asking, return_exceptions=True)
                deadline = time.monotonic() + 10
                while any(map(_exists, workers)):
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.05)
            finally:
                if gateway.returncode is None:
                    gateway.kill()
                    await gateway.wait()

    asyncio.run(scenario())


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def _ready(client: httpx2.AsyncClient) -> None:
    while True:
        with contextlib.suppress(httpx2.TransportError):
            if (await client.get("/readyz")).status_code == 200:
                return
        await asyncio.sleep(0.05)


def _children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _cpu_ticks(pid: int) -> int:
    """Processor time of a process, in hundredths of a second."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
