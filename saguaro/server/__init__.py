"""The gRPC bootstrap of all three services: port, health, reflection, typed errors, signals, drain, placement."""

from saguaro.server.doorkeeper import Gate, current_request_id, within
from saguaro.server.grpc_server import GrpcServer, Register, serve
from saguaro.server.process import apply_placement, configure_logging, run_service

__all__ = [
    "run_service",
    "serve",
    "GrpcServer",
    "Register",
    "Gate",
    "current_request_id",
    "within",
    "apply_placement",
    "configure_logging",
]
