"""Runs a command that dies with its parent: `python _child.py <parent's pid> <command> ...`.

A script of its own, without imports from the package, since it stands in front of every service's start.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for SIGKILL at the parent's death, then become the command; the wish outlives exec."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It died before the kernel knew of the wish.
        sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
