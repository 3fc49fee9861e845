"""Which verifiers are used, and which one takes the next generation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from gateway.verifiers import VerifierPool
from gateway.verifiers.addresses import parse_addresses, resolve
from gateway.verifiers.prefixes import PrefixMap
from saguaro.errors import ConfigurationError, Unavailable
from tests.unit.gateway.house import running_house
from tests.unit.gateway.several_verifiers import ANSWER, PROMPT, Verifiers, fake_for, request, running_verifiers


async def until(verifiers: Verifiers, num_usable: int) -> None:
    while len(verifiers.pool.usable) != num_usable:
        assert await verifiers.pool.wait_for_change(10), verifiers.pool.complaints


async def until_judged(verifiers: Verifiers) -> None:
    while not any(member.is_unfit for member in verifiers.pool.members):
        assert await verifiers.pool.wait_for_change(10), verifiers.pool.complaints


def test_a_verifier_of_another_model_is_not_used_until_it_serves_the_same(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_verifiers(text_folder, {}, {"name": "other"}, num_usable=1) as verifiers:
            await until_judged(verifiers)
            (used,), (unfit,) = verifiers.pool.usable, [item for item in verifiers.pool.members if item.is_unfit]
            name, others_name = (
                ("fake", "other") if used.info and used.info.model.name == "other" else ("other", "fake")
            )
            assert f"{unfit.address} serves another model than the others" in verifiers.pool.complaints
            assert f"name is {name}, theirs {others_name}" in verifiers.pool.complaints
            (answer,) = await verifiers.answer(request())
            assert answer.text == ANSWER
            index = [server.address for server in verifiers.servers].index(unfit.address)
            assert not verifiers.fakes[index].requests
            await verifiers.restart(index, fake_for(verifiers.text, name=others_name))
            await until(verifiers, 2)
            assert verifiers.pool.complaints == ""

    asyncio.run(scenario())


def test_when_all_come_back_with_another_model_that_one_is_served(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_verifiers(text_folder, {}, {}) as verifiers:
            await verifiers.restart(0, fake_for(verifiers.text, name="new"))
            await until_judged(verifiers)
            assert verifiers.pool.info().model.name == "fake"
            await verifiers.restart(1, fake_for(verifiers.text, name="new"))
            await until(verifiers, 2)
            assert verifiers.pool.info().model.name == "new"
            assert (await verifiers.answers.served_model()).model.name == "new"

    asyncio.run(scenario())


def test_one_that_went_away_gets_nothing_and_is_used_again_when_it_is_back(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_verifiers(text_folder, {}, {}) as verifiers:
            await verifiers.servers[0].stop()
            await until(verifiers, 1)
            assert f"the verifier at {verifiers.servers[0].address}" in verifiers.pool.complaints
            for _ in range(3):
                await verifiers.answer(request())
            assert not verifiers.fakes[0].requests
            await verifiers.restart(0, fake_for(verifiers.text))
            await until(verifiers, 2)

    asyncio.run(scenario())


def test_the_least_loaded_takes_the_next_by_what_it_reports_and_what_we_sent_since(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_verifiers(text_folder, {"num_running": 2}, {"num_running": 4}) as verifiers:
            first, second = verifiers.pool.members
            while (first.load, second.load) != ((False, 2), (False, 4)):
                first, second = sorted(verifiers.pool.members, key=lambda member: member.load)
                await asyncio.sleep(0.05)
            info = verifiers.pool.info()
            with first.counted(), first.counted():
                assert verifiers.pool.choose(PROMPT, info.model) in (first, second)
                with first.counted():
                    assert first.load == (False, 5)
                    assert verifiers.pool.choose(PROMPT, info.model) is second
            assert verifiers.pool.choose(PROMPT, info.model) is first
            assert verifiers.pool.choose(PROMPT, info.model, without=[first]) is second
            assert verifiers.pool.choose(PROMPT, info.model, without=[first, second]) is None

    asyncio.run(scenario())


def test_a_prompt_goes_where_its_beginning_is_unless_it_is_crowded_there(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_verifiers(text_folder, {}, {}) as verifiers:
            model = verifiers.pool.info().model
            first, second = verifiers.pool.members
            known = tuple(range(100))
            verifiers.pool.served(known, first)
            with first.counted(), first.counted(), first.counted(), first.counted():
                assert verifiers.pool.choose((*known, 7), model) is first  # four more than the other
                assert verifiers.pool.choose((*known[:50], 7), model) is first
                assert verifiers.pool.choose((7, *known), model) is second
                with first.counted():
                    assert verifiers.pool.choose((*known, 7), model) is second  # too many
            verifiers.pool.served(known, second)  # the last one counts
            assert verifiers.pool.choose((*known, 7), model) is second

    asyncio.run(scenario())


def test_an_answer_s_own_tokens_lead_the_next_turn_to_its_verifier(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_verifiers(text_folder, {}, {}) as verifiers:
            (answer,) = await verifiers.answer(request())
            (served,) = [index for index, fake in enumerate(verifiers.fakes) if fake.requests]
            address = verifiers.servers[served].address
            turn = (*PROMPT, *answer.token_ids, *range(40))
            assert len(PROMPT) < 32 < len(PROMPT) + len(answer.token_ids)
            chosen = verifiers.pool.choose(turn, verifiers.pool.info().model)
            assert chosen is not None
            assert chosen.address == address

    asyncio.run(scenario())


def test_prefixes_are_found_by_whole_blocks_longest_first_and_the_oldest_are_forgotten() -> None:
    places: PrefixMap[str] = PrefixMap(block_tokens=4, max_blocks=5)
    places.remember(range(12), "a")
    places.remember([*range(4), 9, 9, 9, 9], "b")
    assert places.find(range(12), lambda place: True) == "a"
    assert places.find(range(7), lambda place: True) == "b"  # the block that both have was b's last
    assert places.find(range(3), lambda place: True) is None
    assert places.find([*range(4), 9, 9, 9, 9, 1], lambda place: True) == "b"
    assert places.find(range(12), lambda place: place == "b") == "b"
    assert places.find([5, *range(12)], lambda place: True) is None
    places.remember([7] * 16, "c")
    assert places.find(range(12), lambda place: True) != "a"


@pytest.mark.parametrize("text", ["host", "host:port", ":1", "a:1,,b:2", "dns:///a"])
def test_an_address_that_is_none_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write host:port or dns:///name:port"):
        parse_addresses(text)


def test_a_name_stands_for_all_its_addresses_and_an_unknown_one_for_none(text_folder: Path) -> None:
    async def scenario() -> None:
        found = await resolve(parse_addresses("dns:///localhost:7, 10.0.0.1:8, dns:///nobody.invalid:9"))
        assert {"127.0.0.1:7", "10.0.0.1:8"} <= found
        assert found <= {"127.0.0.1:7", "10.0.0.1:8", "[::1]:7"}
        nobody = VerifierPool("dns:///nobody.invalid:9", max_message_bytes=1 << 20, keepalive_seconds=20)
        await nobody.start()
        with pytest.raises(Unavailable, match=r"no verifier has the address dns:///nobody\.invalid:9"):
            await nobody.wait_until_usable(0.05)
        await nobody.close()
        async with running_verifiers(text_folder, {}) as verifiers:
            port = verifiers.servers[0].port
            pool = VerifierPool(f"dns:///localhost:{port}", max_message_bytes=1 << 20, keepalive_seconds=20)
            await pool.start()
            assert (await pool.wait_until_usable(10)).model.name == "fake"
            await pool.close()

    asyncio.run(scenario())


def test_readiness_counts_and_at_the_admin_port_names_who_is_not_used_and_fails_when_nobody_is(
    text_folder: Path,
) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, httpx2.AsyncClient() as client:
            said: list[bool] = []

            async def say(is_ready: bool) -> None:
                said.append(is_ready)

            keeping = asyncio.create_task(house.answers.verifiers.keep_ready(say))
            url = f"{house.http_url}/readyz"
            assert (await client.get(url)).text == "ready"
            await house.verifier_server.stop()
            pool = house.answers.verifiers
            while pool.usable:
                assert await pool.wait_for_change(10)
            answer = await client.get(url)
            assert (answer.status_code, answer.text) == (503, "not ready: 0 of 1 verifiers can be used")
            inside = await client.get(f"{house.admin_url}/readyz")
            assert inside.status_code == 503
            assert house.verifier_server.address in inside.text
            keeping.cancel()
            assert (said[0], said[-1]) == (True, False)

    asyncio.run(scenario())
