"""The verifier's numbers at each scrape, under vLLM's names where the meaning is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from saguaro.server import labelled
from saguaro.types import TrafficClass
from verifier_service.decode_loop import DecodeLoop


class VerifierCollector(Collector):
    """Reads what the loop counts anyway; `loop` gives None until there is one."""

    def __init__(self, loop: Callable[[], DecodeLoop | None]) -> None:
        self._loop = loop

    def collect(self) -> Iterable[Metric]:
        """Everything, as it is now."""
        loop = self._loop()
        if loop is None:
            return ()
        return (*_load(loop), *_speculation(loop), *_rounds(loop))


def _load(loop: DecodeLoop) -> Iterable[Metric]:
    scheduler = loop.scheduler
    yield _gauge("num_requests_running", "Sequences in the step loop.", len(scheduler.running))
    yield _gauge("num_requests_waiting", "Sequences that wait for blocks.", loop.num_waiting)
    yield _gauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", scheduler.blocks.usage)
    yield _counter("num_preemptions", "Sequences put back to free their blocks.", scheduler.num_preemptions)
    yield SummaryMetricFamily(
        "saguaro_request_queue_time_seconds",
        "From a request's arrival to the step loop.",
        count_value=loop.tally.num_queued,
        sum_value=loop.tally.queued_ns / 1e9,
    )


def _speculation(loop: DecodeLoop) -> Iterable[Metric]:
    speculations, batch = loop.speculations, len(loop.scheduler.running)
    plans = {item.name.lower(): speculations.plans.plan(item, batch) for item in TrafficClass}
    by_class = "traffic_class"
    yield labelled(
        GaugeMetricFamily("saguaro_lookahead_tokens", "K in force.", labels=(by_class,)),
        {name: plan.lookahead for name, plan in plans.items()},
    )
    yield labelled(
        GaugeMetricFamily("saguaro_break_even_batch", "b* in force: misses wait below it.", labels=(by_class,)),
        {name: plan.break_even_batch for name, plan in plans.items()},
    )
    plan = speculations.planner.plan
    yield labelled(
        GaugeMetricFamily("saguaro_predicted_tokens_per_second", "A sequence's, by the plan.", labels=("decoding",)),
        {"speculated": plan.predicted_rate, "plain": plan.plain_rate},
    )
    yield _gauge("speculation_cache_hit_rate", "Decayed share of lookups that hit.", speculations.planner.hit_rate)
    yield _gauge("speculating", "1 while a speculator is attached.", float(speculations.detached_reason is None))
    yield _counter("stale_messages", "Pieces for a round that was over.", speculations.num_stale)
    yield _counter("malformed_messages", "Speculations that could not be used.", speculations.num_malformed)


def _rounds(loop: DecodeLoop) -> Iterable[Metric]:
    tally = loop.tally
    yield _counter("rounds", "Verifications.", tally.num_rounds)
    yield _counter("generation_tokens", "Tokens emitted.", sum(tally.tokens.copy().values()))
    yield _counter("spec_decode_num_drafts", "Verifications of a speculation.", tally.num_drafts)
    yield _counter("spec_decode_num_draft_tokens", "Draft tokens verified.", tally.num_draft_tokens)
    yield _counter("spec_decode_num_accepted_tokens", "Draft tokens accepted.", tally.num_accepted_tokens)
    for name, text, label, values in (
        (
            "spec_decode_num_accepted_tokens_per_pos",
            "Draft tokens accepted, by place.",
            "position",
            {str(place): count for place, count in tally.accepted_at.copy().items()},
        ),
        (
            "speculation_cache_lookups",
            "Outcomes looked up.",
            "result",
            {result.name.lower(): count for result, count in tally.lookups.copy().items()},
        ),
        (
            "tokens",
            "Tokens emitted, by where they came from.",
            "provenance",
            {source.name.lower(): count for source, count in tally.tokens.copy().items()},
        ),
        (
            "round_seconds",
            "Time of rounds by part: waiting, the target's forward, acceptance and lookup.",
            "part",
            {part: spent_ns / 1e9 for part, spent_ns in tally.part_ns.copy().items()},
        ),
    ):
        yield labelled(CounterMetricFamily(f"saguaro_{name}", text, labels=(label,)), values)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"saguaro_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"saguaro_{name}", text, value=value)
