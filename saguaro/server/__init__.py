"""The gRPC bootstrap of all three services: port, health, reflection, typed errors, signals, drain, placement."""

from saguaro.server.doorkeeper import current_request_id
from saguaro.server.grpc_server import GrpcServer, Register, serve
from saguaro.server.process import apply_placement, configure_logging, run_service

__all__ = [
    "run_service",
    "serve",
    "GrpcServer",
    "Register",
    "current_request_id",
    "apply_placement",
    "configure_logging",
]
