"""The gRPC bootstrap of all three services: port, health, reflection, typed errors, signals, drain, placement."""

from saguaro.server.connections import Connections, connection_limit
from saguaro.server.doorkeeper import Gate, current_request_id, within
from saguaro.server.grpc_server import GrpcServer, Register, serve
from saguaro.server.metrics_port import labelled, metrics_served
from saguaro.server.process import apply_placement, configure_logging, run_service
from saguaro.server.relay import GenerationHandle, Relay
from saguaro.server.request_ids import REQUEST_ID_KEY, RequestId
from saguaro.server.sparingly import Sparingly
from saguaro.server.tls import PortTls, dial_tls, port_tls
from saguaro.server.upkeep import kept_up, side_by_side

__all__ = [
    "run_service",
    "serve",
    "GrpcServer",
    "Register",
    "Gate",
    "Relay",
    "GenerationHandle",
    "PortTls",
    "port_tls",
    "dial_tls",
    "Connections",
    "connection_limit",
    "Sparingly",
    "REQUEST_ID_KEY",
    "RequestId",
    "current_request_id",
    "within",
    "kept_up",
    "side_by_side",
    "metrics_served",
    "labelled",
    "apply_placement",
    "configure_logging",
]
