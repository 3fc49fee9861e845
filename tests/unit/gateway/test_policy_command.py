"""`saguaro policy` at a real gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from saguaro.cli import app
from saguaro.client import AcceptanceMode, AsyncClient, ClassPolicy, TrafficClass
from saguaro.errors import InvalidRequest
from saguaro.types import TrafficPolicy
from tests.unit.gateway.house import House, running_house


def at_gateway(text_folder: Path, work: Callable[[House], None]) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house:
            await asyncio.to_thread(work, house)

    asyncio.run(scenario())


def policy(house: House, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["policy", *arguments, "--server", house.address])


def test_bounds_that_are_named_change_in_the_classes_that_are_named(text_folder: Path) -> None:
    def work(house: House) -> None:
        first = policy(house, "--json", "--acceptance", "rejection")
        assert first.exit_code == 0, first.output
        every = {"max_lookahead": "auto", "break_even_batch": "auto", "acceptance": "rejection"}
        assert json.loads(first.stdout)["policy"] == {"latency": every, "balanced": every, "throughput": every}
        second = policy(house, "latency", "--max-lookahead", "3", "--break-even-batch", "inf", "--json")
        said = json.loads(second.stdout)
        assert said["policy"]["latency"] == every | {"max_lookahead": 3, "break_even_batch": "inf"}
        assert said["policy"]["balanced"] == every
        assert [item["in_force"] for item in said["verifiers"]] == [True]
        third = json.loads(policy(house, "latency", "--max-lookahead", "auto", "--json").stdout)
        assert third["policy"]["latency"] == every | {"break_even_batch": "inf"}
        assert house.desk.report.policy.latency == ClassPolicy(None, float("inf"), AcceptanceMode.REJECTION)

    at_gateway(text_folder, work)


def test_without_bounds_it_shows_and_changes_nothing(text_folder: Path) -> None:
    def work(house: House) -> None:
        shown = policy(house)
        assert shown.exit_code == 0
        assert "throughput" in shown.stdout
        assert f"{house.verifier_server.address}: not in force" in shown.stdout
        assert house.verifier.policies == []

    at_gateway(text_folder, work)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-lookahead", "17"), "--max-lookahead is 17: input should be less than or equal to 16, or auto"),
        (("latency", "--break-even-batch", "often"), "--break-even-batch is often: .*number.*, or auto"),
        (("--acceptance", "fast"), "--acceptance is fast: input should be 'coupled' or 'rejection', or auto"),
    ],
)
def test_a_bad_bound_is_refused_by_its_flag(text_folder: Path, arguments: tuple[str, ...], message: str) -> None:
    def work(house: House) -> None:
        refused = policy(house, *arguments)
        assert refused.exit_code == 2
        with pytest.raises(InvalidRequest, match=message):
            raise InvalidRequest("", refused.stderr)
        assert house.desk.report.policy == TrafficPolicy()

    at_gateway(text_folder, work)


def test_no_gateway_is_told_as_such() -> None:
    refused = CliRunner().invoke(app, ["policy", "--server", "127.0.0.1:9"])
    assert refused.exit_code == 1
    assert "saguaro policy: no gateway listens on 127.0.0.1:9" in refused.stderr


def test_the_sdk_reads_and_sets_it(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, AsyncClient(house.address) as client:
            assert (await client.get_policy()).policy == TrafficPolicy()
            bounds = ClassPolicy(0, 2.5, AcceptanceMode.COUPLED)
            report = await client.set_policy({TrafficClass.THROUGHPUT: bounds})
            assert report == await client.get_policy() == house.desk.report
            assert report.policy == TrafficPolicy(throughput=bounds)
            with pytest.raises(InvalidRequest, match="max_lookahead is 99"):
                await client.set_policy({TrafficClass.LATENCY: ClassPolicy(99)})

    asyncio.run(scenario())
