"""The deployment's policy at the gateway: read and set at both doors, pushed to the verifier whenever it joins."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import httpx2
import pytest

from gateway.policy import PolicyDesk
from gateway.verifiers import VerifierPool
from saguaro.client import AsyncClient
from saguaro.errors import InvalidRequest
from saguaro.types import AcceptanceMode, ClassPolicy, TrafficClass, TrafficPolicy
from saguaro.v1 import common_pb2, gateway_pb2, gateway_pb2_grpc
from saguaro.wire.policy import traffic_policy_from_proto
from tests.unit.gateway.house import FakeVerifier, House, running_house, serving, verifier_on
from tests.unit.gateway.test_http_life import until

LATENCY, THROUGHPUT = TrafficClass.LATENCY, TrafficClass.THROUGHPUT
AUTO = {"max_lookahead": "auto", "break_even_batch": "auto", "acceptance": "auto"}


@contextlib.asynccontextmanager
async def admin_of(house: House) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=house.admin_url, timeout=20) as client:
        yield client


def is_kept(house: House) -> bool:
    """At once on an idle machine; a busy one may need a second try."""
    return all(item.in_force for item in house.desk.report.verifiers)


def test_until_somebody_changes_it_every_class_is_auto_at_gateway_and_verifier(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, admin_of(house) as admin:
            before = (await admin.get("/admin/policy")).json()
            assert before["policy"] == {"latency": AUTO, "balanced": AUTO, "throughput": AUTO}
            assert [item["in_force"] for item in before["verifiers"]] == [False]
            await house.desk.open()
            await until(lambda: is_kept(house))
            (kept,) = (await admin.get("/admin/policy")).json()["verifiers"]
            assert kept == {"address": house.verifier_server.address, "in_force": True, "reason": None}
            assert house.verifier.policies[0] == {item: ClassPolicy() for item in TrafficClass}

    asyncio.run(scenario())


def test_a_policy_put_at_the_admin_port_is_pushed_to_the_verifier(text_folder: Path) -> None:
    change = {"latency": {"break_even_batch": "inf", "max_lookahead": 3}, "throughput": {"acceptance": "rejection"}}

    async def scenario() -> None:
        async with running_house(text_folder) as house, admin_of(house) as admin:
            answer = await admin.put("/admin/policy", json=change)
            assert answer.status_code == 200, answer.text
            assert answer.json()["policy"]["latency"] == AUTO | {"break_even_batch": "inf", "max_lookahead": 3}
            assert answer.json()["verifiers"][0]["address"] == house.verifier_server.address
            await until(lambda: is_kept(house))
            assert house.verifier.policies[-1][LATENCY] == ClassPolicy(3, math.inf)
            assert house.verifier.policies[-1][THROUGHPUT] == ClassPolicy(acceptance=AcceptanceMode.REJECTION)
            # What GET says can be PUT again; a class that is left out stays.
            await admin.put("/admin/policy", json={"balanced": {"break_even_batch": 2.5}})
            document = (await admin.get("/admin/policy")).json()["policy"]
            again = (await admin.put("/admin/policy", json=document)).json()["policy"]
            assert again == document
            assert (again["latency"]["max_lookahead"], again["balanced"]["break_even_batch"]) == (3, 2.5)

    asyncio.run(scenario())


def test_grpc_reads_and_sets_the_same_policy(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, grpc.aio.insecure_channel(house.address) as channel:
            stub = gateway_pb2_grpc.GatewayServiceStub(channel)
            bounds = common_pb2.ClassPolicy(max_lookahead_tokens=0, break_even_batch=0)
            change = gateway_pb2.GatewayServiceSetPolicyRequest(policy=common_pb2.TrafficPolicy(latency=bounds))
            changed = await stub.SetPolicy(change)
            assert [item.address for item in changed.verifiers] == [house.verifier_server.address]
            await until(lambda: is_kept(house))
            read = await stub.GetPolicy(gateway_pb2.GatewayServiceGetPolicyRequest())
            policy = TrafficPolicy(latency=ClassPolicy(0, 0.0))
            assert traffic_policy_from_proto(read.policy) == house.desk.report.policy == policy
            change.policy.latency.max_lookahead_tokens = 17
            with pytest.raises(grpc.aio.AioRpcError, match=r"max_lookahead is 17; .* 0 .* to 16") as refused:
                await stub.SetPolicy(change)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert house.desk.report.policy == policy

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("nonsense", "the body is not JSON"),
        ('{"fast": {}}', "fast is {}: extra inputs are not permitted"),
        ('{"latency": {"max_lookahead": 99}}', "latency.max_lookahead is 99: .*less than or equal to 16"),
        ('{"latency": {"break_even_batch": "often"}}', "latency.break_even_batch is 'often': .*number"),
    ],
)
def test_a_bad_policy_is_a_400_that_names_the_field_and_changes_nothing(
    text_folder: Path, body: str, message: str
) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, admin_of(house) as admin:
            answer = await admin.put("/admin/policy", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 400
            with pytest.raises(InvalidRequest, match=message):
                raise InvalidRequest("", answer.json()["error"]["message"])
            assert (await admin.put("/admin/policy", content=body)).status_code == 415
            assert house.desk.report.policy == TrafficPolicy()
            assert house.verifier.policies == []

    asyncio.run(scenario())


async def within(seconds: float, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(seconds):
        await until(holds)


def test_a_verifier_that_joins_late_or_again_is_told_the_policy() -> None:
    wanted = TrafficPolicy(latency=ClassPolicy(2, math.inf))

    async def scenario() -> None:
        first = FakeVerifier()
        async with serving(verifier_on(0, first)) as server:
            address, port = server.address, server.port
        pool = VerifierPool(address, max_message_bytes=1 << 20, keepalive_seconds=20)
        desk = PolicyDesk(TrafficPolicy(), pool)
        await pool.start()
        try:
            await within(8, lambda: "cannot be reached" in desk.report.verifiers[0].reason)
            report = await desk.change({LATENCY: wanted.latency})
            assert not report.verifiers[0].in_force
            for joining in (first, FakeVerifier()):
                async with serving(verifier_on(port, joining)):
                    await pool.wait_until_usable(8)
                    # Told before it is used, and once.
                    assert [told[LATENCY] for told in joining.policies] == [wanted.latency]
                    assert desk.report.verifiers[0].in_force
                await within(8, lambda: not desk.report.verifiers[0].in_force)
        finally:
            await pool.close()


def test_a_verifier_that_could_not_be_told_a_change_is_told_again() -> None:
    async def scenario() -> None:
        fake = FakeVerifier()
        async with serving(verifier_on(0, fake)) as server:
            pool = VerifierPool(server.address, max_message_bytes=1 << 20, keepalive_seconds=20)
            desk = PolicyDesk(TrafficPolicy(), pool)
            await desk.open()
            await pool.start()
            try:
                await pool.wait_until_usable(8)
                fake.deaf_to_policies = 1
                report = await desk.change({LATENCY: ClassPolicy(2)})
                assert "busy" in report.verifiers[0].reason
                await within(8, lambda: desk.report.verifiers[0].in_force)
                assert [told[LATENCY] for told in fake.policies] == [ClassPolicy(), ClassPolicy(2)]
            finally:
                await pool.close()

    asyncio.run(scenario())


def test_the_class_of_a_request_travels_to_the_verifier_from_both_doors(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, AsyncClient(house.address) as client:
            await client.generate("Hi", traffic_class="throughput").finish()
            with pytest.raises(InvalidRequest, match='traffic_class is "fast"; it must be one of latency, balanced'):
                client.generate("Hi", traffic_class="fast")
            async with httpx2.AsyncClient(base_url=house.http_url, timeout=20) as http:
                for named in ({"traffic_class": "latency"}, {}):
                    assert (await http.post("/v1/completions", json={"prompt": "Hi"} | named)).status_code == 200
                refused = await http.post("/v1/completions", json={"prompt": "Hi", "traffic_class": "fast"})
                assert refused.status_code == 400
            classes = [request.traffic_class for request in house.verifier.requests]
            assert classes == [THROUGHPUT, LATENCY, TrafficClass.BALANCED]

    asyncio.run(scenario())
