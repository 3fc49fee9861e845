"""What a command that asks a gateway comes to, as an exit code: 0, 2 for bad input, 1 for any other fault."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

from saguaro.errors import InvalidRequest, ModelNotFound, SaguaroError, Unavailable

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130


def exit_code_of(command: str, address: str, work: Callable[[], None]) -> int:
    """Do it; faults are told on stderr as `command`'s, which asks the gateway at `address`."""

    def fail(message: str, code: int) -> int:
        sys.stderr.write(f"saguaro {command}: {message}\n")
        return code

    try:
        work()
    except (InvalidRequest, ModelNotFound) as error:
        return fail(str(error), EXIT_BAD_INPUT)
    except Unavailable as error:
        if not _listens(address):
            return fail(f"no gateway listens on {address}; `saguaro up` starts one", EXIT_FAILED)
        return fail(str(error), EXIT_FAILED)
    except SaguaroError as error:
        return fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        # Leaving a stream has cancelled its answer.
        return EXIT_INTERRUPTED
    return 0


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1):
            return True
    except (OSError, ValueError):
        return False
