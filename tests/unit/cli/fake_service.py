"""`python -m tests.unit.cli.fake_service`: stands in for any of the three services; takes their flags, serves health.

Environment: FAKE_DIES names the role that ends with exit code 3 instead of starting.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from saguaro.config import GatewaySettings
from saguaro.progress import report_progress
from saguaro.server import configure_logging, serve


def role_of(argv: list[str]) -> str:
    """Each service has a flag that the others lack."""
    return "speculator" if "--draft" in argv else "gateway" if "--tokenizer" in argv else "verifier"


async def main() -> None:
    role, argv = role_of(sys.argv), sys.argv
    configure_logging(role, "info")
    report_progress(role, "loading a model", 0.5)
    if os.environ.get("FAKE_DIES") == role:
        sys.stderr.write("no model at /x\n")
        sys.exit(3)

    def register(server: Any) -> list[str]:
        return []

    host, port = (argv[argv.index(flag) + 1] for flag in ("--host", "--port"))
    await serve(GatewaySettings(host=host, port=int(port)), register, role=role)


if __name__ == "__main__":
    asyncio.run(main())
