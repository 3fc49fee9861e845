"""What a scrape of the gateway says after known traffic."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from saguaro.client import AsyncClient
from saguaro.errors import InvalidRequest
from tests.unit.gateway.house import House, running_house
from tests.unit.gateway.test_http_life import dialled, until


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (item.name, tuple(sorted(item.labels.items()))): item.value
        for family in text_string_to_metric_families(text)
        for item in family.samples
    }


async def scrape(url: str) -> dict[Any, float]:
    async with httpx2.AsyncClient(base_url=url, timeout=20) as client:
        answer = await client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        return samples(answer.text)


def test_counts_and_latencies_are_those_of_the_traffic(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, AsyncClient(house.address) as client:
            answers = [await client.generate("Hi", traffic_class="latency").finish() for _ in range(2)]
            with pytest.raises(InvalidRequest):
                await client.generate([99999]).finish()
            seen = await scrape(house.admin_url)
            assert await scrape(house.http_url) == pytest.approx(seen, rel=10)
        tokens = sum(answer.num_generated_tokens for answer in answers)
        runs = [-(-answer.num_generated_tokens // 3) for answer in answers]
        latency = (("traffic_class", "latency"),)
        assert seen["saguaro_generation_tokens_total", ()] == tokens
        assert seen["saguaro_prompt_tokens_total", ()] == sum(answer.num_prompt_tokens for answer in answers)
        assert seen["saguaro_request_success_total", (("finished_reason", "stop"),)] == 2
        assert seen["saguaro_request_errors_total", (("code", "INVALID_ARGUMENT"),)] == 1
        assert seen["saguaro_time_to_first_token_seconds_count", latency] == 2
        assert seen["saguaro_e2e_request_latency_seconds_count", latency] == 2
        assert seen["saguaro_commit_latency_seconds_count", latency] == sum(runs) - 2
        # The tokens of the first run of an answer have no run before them.
        assert seen["saguaro_inter_token_latency_seconds_count", latency] == tokens - 2 * 3
        # A run's time is shared out over its tokens: the sums are the same.
        sums = [seen[f"saguaro_{name}_seconds_sum", latency] for name in ("commit_latency", "inter_token_latency")]
        assert sums[0] == pytest.approx(sums[1])
        assert seen["saguaro_tokens_total", (("provenance", "bonus"),)] == sum(runs)
        assert seen["saguaro_tokens_total", (("provenance", "cached_draft"),)] == tokens - sum(runs)
        assert seen["saguaro_spec_decode_num_draft_tokens_total", ()] == 2 * 4
        assert seen["saguaro_speculation_cache_lookups_total", (("result", "hit"),)] == 2 * 2
        assert seen["saguaro_num_requests_running", ()] == 0
        assert seen["process_cpu_seconds_total", ()] > 0

    asyncio.run(scenario())


def test_an_answer_whose_client_leaves_counts_as_cancelled_and_runs_until_then(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder, hang_after_runs=1) as house, dialled(house) as client:
            body = {"prompt": "Hi", "max_tokens": 50, "stream": True}
            async with client.stream("POST", "/v1/completions", json=body) as response:
                lines = response.aiter_lines()
                await anext(lines)
                assert (await scrape(house.http_url))["saguaro_num_requests_running", ()] == 1
            await until(lambda: house.answers.num_running == 0)
            seen = await scrape(house.http_url)
        assert seen["saguaro_request_errors_total", (("code", "CANCELLED"),)] == 1
        assert seen["saguaro_num_requests_running", ()] == 0

    asyncio.run(scenario())


def test_the_policy_in_force_is_among_the_metrics(text_folder: Path) -> None:
    async def bounds_of(house: House) -> dict[str, str]:
        seen = await scrape(house.admin_url)
        labels = [dict(labels) for name, labels in seen if name == "saguaro_policy_info"]
        return {item["traffic_class"]: f"{item['max_lookahead']},{item['break_even_batch']}" for item in labels}

    async def scenario() -> None:
        async with running_house(text_folder) as house, dialled(house):
            assert set((await bounds_of(house)).values()) == {"auto,auto"}
            async with httpx2.AsyncClient(base_url=house.admin_url) as admin:
                await admin.put("/admin/policy", json={"latency": {"max_lookahead": 2, "break_even_batch": "inf"}})
            assert (await bounds_of(house))["latency"] == "2,inf"
            await until(lambda: house.desk.report.verifiers[0].in_force)
            kept = (("verifier", house.verifier_server.address),)
            assert (await scrape(house.admin_url))["saguaro_policy_in_force", kept] == 1

    asyncio.run(scenario())


def test_the_admin_port_has_its_own_probes_and_none_of_the_public_paths(text_folder: Path) -> None:
    async def scenario() -> None:
        async with running_house(text_folder) as house, httpx2.AsyncClient(base_url=house.admin_url) as admin:
            assert (await admin.get("/livez")).text == "alive"
            assert (await admin.get("/readyz")).text == "ready"
            assert (await admin.get("/v1/models")).status_code == 404
            async with dialled(house) as public:
                assert (await public.get("/admin/policy")).status_code == 404

    asyncio.run(scenario())
