"""The speculator's numbers at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from speculator_service.scheduler import DraftScheduler


class SpeculatorCollector(Collector):
    """Reads what the scheduler counts anyway; `scheduler` gives None until there is one."""

    def __init__(self, scheduler: Callable[[], DraftScheduler | None]) -> None:
        self._scheduler = scheduler

    def collect(self) -> Iterable[Metric]:
        """Everything, as it is now."""
        scheduler = self._scheduler()
        if scheduler is None:
            return
        for name, text, value in (
            ("num_sequences", "Sequences open for all verifiers.", scheduler.num_sequences),
            ("num_verifiers", "Streams of verifiers.", scheduler.num_streams),
            ("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", scheduler.blocks.usage),
        ):
            yield GaugeMetricFamily(f"saguaro_{name}", text, value=value)
        for name, text, count in (
            ("draft_forwards", "Forwards of the draft model.", scheduler.num_forwards),
            ("draft_rows", "Rows of those forwards.", scheduler.num_rows),
            ("busy_seconds", "Time in forwards; its rate is the busy ratio.", scheduler.busy_ns / 1e9),
            ("entries", "Messages with prepared speculations.", scheduler.num_entries),
            (
                "dropped_draft_tokens",
                "Draft tokens too large for a message.",
                scheduler.num_dropped_tokens,
            ),
            ("sequence_faults", "Faults of the speculator that ended a sequence here.", scheduler.num_faults),
            ("diverged_sequences", "Sequences opened anew since their tokens differed.", scheduler.num_diverged),
            ("stale_messages", "Messages of rounds that were over.", scheduler.num_stale),
        ):
            yield CounterMetricFamily(f"saguaro_{name}", text, value=count)
