"""The official client, and curl, against an emulated trio."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from saguaro.cli.trio import Trio
from saguaro.client import Client
from tests.integration.emulated import emulated
from tests.integration.speculating import await_speculation

CHAT: Any = [{"role": "user", "content": "Why is the sky blue?"}]
NAME = "emulated-mine"
SKY = {
    "type": "object",
    "properties": {"colour": {"enum": ["blue", "red"]}, "clouds": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["colour", "clouds"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with emulated(tmp_path_factory.mktemp("openai"), target_ms=4.0) as running:
        await_speculation(running)
        yield running


@pytest.fixture(scope="module")
def client(trio: Trio) -> Iterator[OpenAI]:
    with OpenAI(base_url=trio.http_url, api_key="none", max_retries=0, timeout=60) as opened:
        yield opened


def test_a_chat_says_what_grpc_says_with_hits(trio: Trio, client: OpenAI) -> None:
    with Client(trio.gateway_address) as ours:
        expected = ours.generate(CHAT, max_tokens=60, temperature=0.8, seed=4).finish()
    answer = client.chat.completions.create(model=NAME, messages=CHAT, max_tokens=60, temperature=0.8, seed=4)
    assert answer.choices[0].message.content == expected.text
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (expected.num_prompt_tokens, 60)
    speculation: Any = answer.to_dict()["metrics"]["speculative_decoding"]  # type: ignore[index]
    assert speculation["num_accepted_draft_tokens"] > 0
    assert speculation["mean_acceptance_length"] > 1
    assert speculation["speculating"]


def test_a_stream_is_the_same_answer_with_and_without_speculation_and_ends_with_the_usage(client: OpenAI) -> None:
    ask: Any = {"model": NAME, "messages": CHAT, "max_tokens": 40, "seed": 9}
    whole = client.chat.completions.create(**ask, extra_body={"disable_speculation": True})
    *chunks, last = client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert len(chunks) > 5
    assert last.usage == whole.usage


def test_a_completion_goes_on_from_text(client: OpenAI) -> None:
    answer = client.completions.create(model=NAME, prompt="Saguaros", max_tokens=8, temperature=0)
    pieces = client.completions.create(model=NAME, prompt="Saguaros", max_tokens=8, temperature=0, stream=True)
    assert len(answer.choices[0].text.split()) == 8
    assert "".join(chunk.choices[0].text for chunk in pieces) == answer.choices[0].text


def test_three_choices_differ_and_come_back_by_their_seed(client: OpenAI) -> None:
    ask: Any = {"model": NAME, "messages": CHAT, "max_tokens": 20, "n": 3, "temperature": 1.2}
    first = client.chat.completions.create(**ask)
    again = client.chat.completions.create(**ask, seed=first.to_dict()["seed"])
    texts = [choice.message.content for choice in first.choices]
    assert len(set(texts)) == 3
    assert [choice.message.content for choice in again.choices] == texts


def test_logprobs_come_with_alternatives_and_spell_the_text(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=NAME, messages=CHAT, max_tokens=10, temperature=0, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert "".join(token.token for token in logprobs.content) == answer.choices[0].message.content
    for token in logprobs.content:
        assert token.top_logprobs[0].logprob == token.logprob <= 0
        assert len(token.top_logprobs) == 3


@pytest.mark.parametrize("speculated", [True, False])
def test_json_of_a_schema_is_json_of_that_schema(client: OpenAI, speculated: bool) -> None:
    answer = client.chat.completions.create(
        model=NAME,
        messages=CHAT,
        max_tokens=100,
        seed=3,
        response_format={"type": "json_schema", "json_schema": {"name": "sky", "schema": SKY, "strict": True}},
        extra_body={"disable_speculation": not speculated},
    )
    text = answer.choices[0].message.content
    assert text is not None
    jsonschema.validate(json.loads(text), SKY)
    assert answer.choices[0].finish_reason == "stop"


def test_a_schema_that_cannot_be_kept_is_refused_by_its_field(client: OpenAI) -> None:
    schema: Any = {"name": "odd", "schema": {"type": "no such type"}}
    with pytest.raises(BadRequestError, match="no such type") as refused:
        client.chat.completions.create(
            model=NAME, messages=CHAT, response_format={"type": "json_schema", "json_schema": schema}
        )
    assert refused.value.param == "response_format"


def test_a_stop_string_ends_the_answer_before_it(client: OpenAI) -> None:
    ask: Any = {"model": NAME, "messages": CHAT, "max_tokens": 30, "temperature": 0}
    whole = client.chat.completions.create(**ask).choices[0].message.content
    assert whole is not None
    stop = whole.split()[7]
    stopped = client.chat.completions.create(**ask, stop=[stop]).choices[0]
    assert stopped.message.content == whole[: whole.index(stop)]
    assert stopped.finish_reason == "stop"


def test_the_clients_own_errors_are_raised(client: OpenAI) -> None:
    with pytest.raises(NotFoundError, match="no-such-model"):
        client.chat.completions.create(model="no-such-model", messages=CHAT)
    with pytest.raises(BadRequestError, match="temperature is -1") as refused:
        client.chat.completions.create(model=NAME, messages=CHAT, temperature=-1)
    assert refused.value.param == "temperature"
    assert [model.id for model in client.models.list()] == [NAME]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_streams_events_up_to_done(trio: Trio) -> None:
    body = {"messages": CHAT, "max_tokens": 5, "stream": True}
    command = ["curl", "--silent", "--fail", "--no-buffer", f"{trio.http_url}/chat/completions"]
    command += ["--header", "Content-Type: application/json", "--data", json.dumps(body)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    events = said.strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    documents = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert documents[-1]["choices"][0]["finish_reason"] == "length"


def test_a_drained_gateway_ends_its_stream_and_exits_cleanly(tmp_path: Path) -> None:
    with emulated(tmp_path, target_ms=4.0) as own, OpenAI(base_url=own.http_url, api_key="none") as client:
        stream = client.chat.completions.create(model=NAME, messages=CHAT, max_tokens=100, stream=True)
        chunks = [next(stream)]
        own.end("gateway")
        chunks += stream
        assert chunks[-1].choices[0].finish_reason == "length"
        assert own.processes["gateway"].exit_code == 0
