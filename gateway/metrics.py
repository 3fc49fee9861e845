"""What the gateway counts, under vLLM's names where the meaning is the same.

Latencies are those at the gateway's door. Tokens come in runs, one a verification, so there are two latencies of a
stream: from run to run (commit), and that time shared out over the run's tokens (inter-token), whose mean is the
usual one.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import prometheus_client as prometheus

from saguaro.answers import AnswerDelta, AnswerEvent, AnswerFinished, AnswerStarted
from saguaro.errors import SaguaroError
from saguaro.types import FinishReason, TokenProvenance, TrafficClass
from saguaro.wire.status import code_of

# Accepted tokens come within microseconds of each other: a quarter of a millisecond must still be told from five.
_TOKEN_BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5)
_FIRST_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_REQUEST_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_BY_CLASS = ("traffic_class",)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Histograms of one traffic class, in seconds."""

    first_token: prometheus.Histogram
    commit: prometheus.Histogram
    token: prometheus.Histogram
    request: prometheus.Histogram


class GatewayMetrics:
    """One gateway's, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> prometheus.Counter:
            return prometheus.Counter(f"saguaro_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, buckets: tuple[float, ...]) -> prometheus.Histogram:
            return prometheus.Histogram(f"saguaro_{name}_seconds", text, _BY_CLASS, buckets=buckets, registry=registry)

        latencies = (
            seconds("time_to_first_token", "From the request to its first tokens.", _FIRST_TOKEN_BUCKETS),
            seconds("commit_latency", "From one run of tokens of an answer to the next.", _TOKEN_BUCKETS),
            seconds("inter_token_latency", "The same a token of the run.", _TOKEN_BUCKETS),
            seconds("e2e_request_latency", "From the request to the end of its answers.", _REQUEST_BUCKETS),
        )
        self.running = prometheus.Gauge("saguaro_num_requests_running", "Answers in flight.", registry=registry)
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts.")
        self.cached_prompt_tokens = counter("cached_prompt_tokens", "Those whose KV was there already.")
        self.generation_tokens = counter("generation_tokens", "Tokens of answers.")
        tokens = counter("tokens", "Tokens of answers by where they came from.", "provenance")
        success = counter("request_success", "Answers that ended by themselves.", "finished_reason")
        self.errors = counter("request_errors", "Requests that came to nothing, by gRPC code.", "code")
        self.rounds = counter("rounds", "Verifications of answers.")
        self.draft_tokens = counter("spec_decode_num_draft_tokens", "Draft tokens verified.")
        self.accepted_tokens = counter("spec_decode_num_accepted_tokens", "Draft tokens accepted.")
        lookups = counter("speculation_cache_lookups", "Outcomes looked up.", "result")
        # Looking a child up takes longer than counting: here, not on the way of every run.
        self.latencies_of = {
            item: Latencies(*(histogram.labels(item.name.lower()) for histogram in latencies)) for item in TrafficClass
        }
        self.tokens_of = {source: tokens.labels(source.name.lower()) for source in TokenProvenance}
        self.success_of = {reason: success.labels(reason.name.lower()) for reason in FinishReason}
        self.hits, self.misses, self.late = (lookups.labels(result) for result in ("hit", "miss", "late"))

    def meter(self, traffic_class: TrafficClass) -> RequestMeter:
        """For one request that comes in now."""
        return RequestMeter(self, self.latencies_of[traffic_class])


class RequestMeter:
    """A context manager around the life of one request; `take` hears of each of its events."""

    def __init__(self, metrics: GatewayMetrics, latencies: Latencies) -> None:
        self._metrics = metrics
        self._latencies = latencies
        self._came_at = time.perf_counter()
        self._last_run_at: dict[int, float] = {}  # by choice

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._latencies.request.observe(time.perf_counter() - self._came_at)
        else:
            self._metrics.errors.labels(_code(error)).inc()

    def take(self, event: AnswerEvent) -> None:
        """An event on its way to the client."""
        match event:
            case AnswerDelta():
                self._take_run(event)
            case AnswerStarted():
                self._metrics.prompt_tokens.inc(len(event.prompt_token_ids))
            case AnswerFinished():
                self._take_end(event)

    def _take_run(self, run: AnswerDelta) -> None:
        now, num_tokens = time.perf_counter(), len(run.token_ids)
        last = self._last_run_at.get(run.choice)
        if not self._last_run_at:
            self._latencies.first_token.observe(now - self._came_at)
        if last is not None and num_tokens:
            self._latencies.commit.observe(now - last)
            each, observe = (now - last) / num_tokens, self._latencies.token.observe
            for _ in range(num_tokens):
                observe(each)
        self._last_run_at[run.choice] = now
        self._metrics.generation_tokens.inc(num_tokens)
        for source in set(run.provenance):
            self._metrics.tokens_of[source].inc(run.provenance.count(source))

    def _take_end(self, end: AnswerFinished) -> None:
        metrics, report = self._metrics, end.speculation
        metrics.success_of[end.reason].inc()
        metrics.cached_prompt_tokens.inc(end.num_cached_prompt_tokens if end.choice == 0 else 0)
        metrics.rounds.inc(report.num_rounds)
        metrics.draft_tokens.inc(report.num_draft_tokens)
        metrics.accepted_tokens.inc(report.num_accepted_tokens)
        metrics.hits.inc(report.cache_hits)
        metrics.misses.inc(report.cache_misses)
        metrics.late.inc(report.cache_late)


def _code(error: BaseException) -> str:
    """The status that its caller got; a caller that went away is a cancelled one."""
    if isinstance(error, SaguaroError):
        return str(code_of(error).name)
    return "CANCELLED" if isinstance(error, GeneratorExit | asyncio.CancelledError) else "INTERNAL"
