"""The gRPC bootstrap of all three services: port, health, reflection, typed errors, signals, drain, placement."""

from saguaro.server.doorkeeper import current_request_id
from saguaro.server.grpc_server import GrpcServer, Register, serve
from saguaro.server.metrics_port import labelled, metrics_served
from saguaro.server.process import apply_placement, configure_logging, run_service

__all__ = [
    "run_service",
    "serve",
    "GrpcServer",
    "Register",
    "current_request_id",
    "metrics_served",
    "labelled",
    "apply_placement",
    "configure_logging",
]
