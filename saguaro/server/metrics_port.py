"""The metrics port of a service that speaks no HTTP otherwise."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from saguaro.config import ModelSettings
from saguaro.errors import ConfigurationError

logger = logging.getLogger(__name__)

Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)


@contextlib.contextmanager
def metrics_served(settings: ModelSettings, collector: Collector) -> Iterator[None]:
    """Serve /metrics of the collector and the process, unless the settings have no port for it.

    Raises ConfigurationError where the port cannot be had. Scrapes are answered on a thread of their own.
    """
    if settings.metrics_port is None:
        yield
        return
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(collector)
    try:
        server, thread = start_http_server(settings.metrics_port, settings.host, registry)
    except OSError as error:
        raise ConfigurationError(
            f"the {settings.role} cannot listen for scrapes on {settings.host}:{settings.metrics_port}: "
            f"{error.strerror}; choose another with --metrics-port, or none"
        ) from None
    logger.info("metrics on http://%s:%d/metrics", settings.host, server.server_port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def labelled(family: Family, values: Mapping[str, float]) -> Family:
    """The family with a sample for each value of its one label."""
    for label, value in values.items():
        family.add_metric((label,), value)
    return family
