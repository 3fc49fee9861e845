"""A client that has neither our code nor our .proto files: all it knows, it was told by reflection."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.unit.gateway.house import House, running_house

ANSWER = "The saguaro 🌵 is größer."
SERVICE = "saguaro.v1.GatewayService"


def ask(house: House) -> None:
    with grpc.insecure_channel(house.address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert SERVICE in database.get_services()
        service = DescriptorPool(database).FindServiceByName(SERVICE)
        assert {"Generate", "Tokenize", "Detokenize", "ListModels"} <= set(service.methods_by_name)

        def call(name: str, **fields: Any) -> Any:
            method = service.methods_by_name[name]
            kind = channel.unary_stream if method.server_streaming else channel.unary_unary
            send = kind(
                f"/{SERVICE}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            return send(GetMessageClass(method.input_type)(**fields), timeout=20)

        assert call("ListModels").models[0].model.name == "fake"
        events = list(call("Generate", chat={"messages": [{"role": "user", "content": "Hi"}]}, sampling={"seed": 5}))
        assert events[0].started.seed == 5
        text = "".join(event.delta.text for event in events if event.HasField("delta"))
        assert text + events[-1].finished.text == ANSWER
        tokens = call("Tokenize", text=ANSWER).token_ids
        assert call("Detokenize", token_ids=tokens).text == ANSWER


def grpcurl(*arguments: str) -> str:
    done = subprocess.run(["grpcurl", "-plaintext", *arguments], capture_output=True, text=True, timeout=20, check=True)
    return done.stdout


def ask_with_grpcurl(house: House) -> None:
    assert SERVICE in grpcurl(house.address, "list")
    assert "rpc Generate" in grpcurl(house.address, "describe", SERVICE)
    asked = json.dumps({"text": "Hi", "sampling": {"seed": "5"}})
    said = grpcurl("-d", asked, house.address, f"{SERVICE}/Generate")
    assert '"seed": "5"' in said
    assert '"reason": "FINISH_REASON_STOP"' in said


@pytest.mark.skipif(shutil.which("grpcurl") is None, reason="grpcurl is not installed")
def test_grpcurl_lists_describes_and_calls(text_folder: Path) -> None:
    in_house(text_folder, ask_with_grpcurl)


def test_services_are_listed_described_and_called_through_their_descriptors(text_folder: Path) -> None:
    in_house(text_folder, ask)


def in_house(text_folder: Path, work: Callable[[House], None]) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, ANSWER) as house:
            await asyncio.to_thread(work, house)

    asyncio.run(scenario())
