"""The policy among the metrics: what is wanted of each class, and which verifier keeps to it."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.policy import PolicyDesk
from saguaro.config import policy_document


class PolicyCollector(Collector):
    """Asked at each scrape."""

    def __init__(self, desk: PolicyDesk) -> None:
        self._desk = desk

    def collect(self) -> Iterable[Metric]:
        """One sample a class, with its bounds as labels; one a verifier."""
        report = self._desk.report
        bounds = GaugeMetricFamily(
            "saguaro_policy_info",
            "Bounds on speculation by traffic class; auto follows from measurements.",
            labels=("traffic_class", "max_lookahead", "break_even_batch", "acceptance"),
        )
        for traffic_class, fields in policy_document(report.policy).items():
            bounds.add_metric([traffic_class, *map(str, fields.values())], 1)
        kept = GaugeMetricFamily("saguaro_policy_in_force", "1 where the verifier keeps to it.", labels=("verifier",))
        for verifier in report.verifiers:
            kept.add_metric([verifier.address], verifier.in_force)
        return (bounds, kept)
