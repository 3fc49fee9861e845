"""What one key began, another key does not find; and only keys that may change the deployment's policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from gateway.guard import Guard
from saguaro.errors import InvalidRequest, PermissionDenied
from saguaro.keys import KeyRecord, hash_of
from saguaro.v1 import gateway_pb2 as pb
from saguaro.v1 import gateway_pb2_grpc
from saguaro.wire.status import error_of
from tests.unit.gateway.test_guard import Caller, bearer, in_house

ANN, BOB = "sgr_ann", "sgr_bob"
SAYS = [{"role": "user", "content": "Tell"}]


def both(**rights: Any) -> Guard:
    return Guard([KeyRecord(name="ann", sha256=hash_of(ANN), **rights), KeyRecord(name="bob", sha256=hash_of(BOB))])


def headers(key: str, **more: str) -> dict[str, str]:
    return dict(bearer(key)) | more


def test_a_session_is_found_by_the_key_that_began_it_alone(text_folder: Path) -> None:
    async def work(caller: Caller) -> None:
        http = caller.http
        made = (await http.post("/v1/sessions", json={}, headers=headers(ANN))).json()
        place, turn = f"/v1/sessions/{made['id']}", {"messages": SAYS, "session_id": made["id"]}
        for answered in (
            await http.get(place, headers=headers(BOB)),
            await http.delete(place, headers=headers(BOB)),
            await http.post("/v1/chat/completions", json=turn, headers=headers(BOB)),
        ):
            assert answered.status_code == 404
            assert answered.json()["error"]["code"] == "session_not_found"
        assert (await http.post("/v1/chat/completions", json=turn, headers=headers(ANN))).status_code == 200
        assert (await http.get(place, headers=headers(ANN))).json()["num_turns"] == 1

    in_house(text_folder, both(), work)


def test_a_stream_is_resumed_by_the_key_that_began_it_alone(text_folder: Path) -> None:
    async def work(caller: Caller) -> None:
        http, asked = caller.http, {"prompt": "Hi", "stream": True, "resumable": True}
        made = await http.post("/v1/completions", json=asked, headers=headers(ANN))
        place = f"/v1/streams/{made.headers['x-request-id']}"
        assert (await http.get(place, headers=headers(BOB))).status_code == 404
        assert (await http.delete(place, headers=headers(BOB))).status_code == 404
        again = await http.get(place, headers=headers(ANN))
        assert again.status_code == 200
        assert again.text.rstrip().endswith("[DONE]")

    in_house(text_folder, both(), work, resume_seconds=30)


def test_a_policy_is_set_by_keys_that_may_alone_and_read_by_all(text_folder: Path) -> None:
    async def work(caller: Caller) -> None:
        async with grpc.aio.insecure_channel(caller.house.address) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)

            async def change(key: str) -> Exception | None:
                try:
                    await stub.SetPolicy(pb.GatewayServiceSetPolicyRequest(), metadata=bearer(key))
                except grpc.aio.AioRpcError as error:
                    return error_of(error, "the gateway")
                return None

            assert not isinstance(await change(ANN), PermissionDenied | InvalidRequest)
            refused = await change(BOB)
            assert isinstance(refused, PermissionDenied)
            assert "bob" in str(refused)
            await stub.GetPolicy(pb.GatewayServiceGetPolicyRequest(), metadata=bearer(BOB))

    in_house(text_folder, both(may_set_policy=True), work)
