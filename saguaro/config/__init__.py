"""Configured once, at the edge: what can be set (`services`) and where settings come from (`sources`)."""

from saguaro.config.services import (
    SETTINGS,
    GatewaySettings,
    ModelSettings,
    ServiceSettings,
    SpeculatorSettings,
    VerifierSettings,
    parse_cores,
)
from saguaro.config.sources import environment_name, flag_name, load_settings, read_settings
from saguaro.config.tls import DialTlsSettings, ListenTlsSettings

__all__ = [
    "SETTINGS",
    "ListenTlsSettings",
    "DialTlsSettings",
    "ServiceSettings",
    "ModelSettings",
    "VerifierSettings",
    "SpeculatorSettings",
    "GatewaySettings",
    "load_settings",
    "read_settings",
    "parse_cores",
    "flag_name",
    "environment_name",
]
