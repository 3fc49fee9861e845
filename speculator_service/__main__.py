"""`python -m speculator_service`: the composition root of the speculator."""

from __future__ import annotations

import sys

import grpc

from saguaro.config import SpeculatorSettings
from saguaro.server import metrics_served, run_service, serve


async def _main(settings: SpeculatorSettings) -> None:
    from saguaro.v1.speculator_pb2_grpc import add_SpeculatorServiceServicer_to_server
    from speculator_service.metrics import SpeculatorCollector
    from speculator_service.service import SpeculatorService
    from speculator_service.worker import SpeculatorWorker

    worker = SpeculatorWorker(settings)
    service = SpeculatorService(worker, settings.max_message_bytes)

    def register(server: grpc.aio.Server) -> list[str]:
        add_SpeculatorServiceServicer_to_server(service, server)
        return ["saguaro.v1.SpeculatorService"]

    with metrics_served(settings, SpeculatorCollector(lambda: getattr(worker, "scheduler", None))):
        await serve(
            settings,
            register,
            role="speculator",
            ready=worker.start,
            keep_ready=worker.keep_ready,
            on_drain=service.end_streams,
            on_stop=worker.stop,
        )


if __name__ == "__main__":
    sys.exit(run_service(SpeculatorSettings, _main))
