"""`python -m verifier_service`: the composition root of the verifier."""

from __future__ import annotations

import sys

import grpc

from saguaro.config import VerifierSettings
from saguaro.server import metrics_served, run_service, serve


async def _main(settings: VerifierSettings) -> None:
    from saguaro.v1.verifier_pb2_grpc import add_VerifierServiceServicer_to_server
    from verifier_service.metrics import VerifierCollector
    from verifier_service.service import VerifierService
    from verifier_service.worker import VerifierWorker

    worker = VerifierWorker(settings)
    service = VerifierService(worker, settings.max_message_bytes)

    def register(server: grpc.aio.Server) -> list[str]:
        add_VerifierServiceServicer_to_server(service, server)
        return ["saguaro.v1.VerifierService"]

    with metrics_served(settings, VerifierCollector(lambda: getattr(worker, "loop", None))):
        await serve(
            settings,
            register,
            role="verifier",
            ready=worker.start,
            keep_ready=worker.keep_ready,
            on_drain=service.drain,
            on_stop=worker.stop,
        )


if __name__ == "__main__":
    sys.exit(run_service(VerifierSettings, _main))
