"""Configured once, at the edge: what can be set (`services`, `gateway`) and where settings come from (`sources`)."""

from saguaro.config.cores import parse_cores
from saguaro.config.gateway import SETTINGS, GatewaySettings
from saguaro.config.policy import ClassPolicySettings, PolicySettings, policy_document, policy_report_document
from saguaro.config.services import ModelSettings, ServiceSettings, SpeculatorSettings, VerifierSettings
from saguaro.config.sources import environment_name, flag_name, load_settings, read_settings, refuse_unknown_variables
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
    "PolicySettings",
    "ClassPolicySettings",
    "policy_document",
    "policy_report_document",
    "load_settings",
    "read_settings",
    "refuse_unknown_variables",
    "parse_cores",
    "flag_name",
    "environment_name",
]
