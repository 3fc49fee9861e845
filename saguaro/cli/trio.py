"""Speculator, verifiers and gateway on this machine, as processes with one owner: three, if there is one verifier."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from saguaro.channel import Tls
from saguaro.cli.health import is_serving
from saguaro.cli.placement import place
from saguaro.cli.ports import Hosts, Ports, dialled, joined
from saguaro.cli.service_process import OnLine, OnProgress, ServiceProcess
from saguaro.emulation.profile import load_profile
from saguaro.emulation.tokenizer import tokenizer_folder

_POLL_SECONDS = 0.1
# Services drain for up to 10 s by default; then they are killed.
_STOP_SECONDS = 15.0


class ServiceDied(Exception):
    """A service without which the trio cannot serve has ended."""


class Trio:
    """A context manager: started and serving inside of the block, ended after it. Whoever cannot start ends all.

    `ports` None takes free ones; `hosts` are where they listen. `draft` None starts no speculator. `emulate` names a
    profile to emulate in place of `target` and `draft`; ConfigurationError if there is none. Extra flags win over those
    that the trio sets. Verifiers are those that `ports` has, else `num_verifiers`; they share the cores of one, and
    after the start one of them has to live.
    `tls` is what all are dialled with, where flags give their ports certificates.
    Must be entered on a thread that outlives it: the kernel ties the children's lives to that thread.
    """

    def __init__(
        self,
        *,
        target: str = "demo-target",
        draft: str | None = "demo-draft",
        emulate: str | None = None,
        ports: Ports | None = None,
        hosts: Hosts = Hosts(),
        num_verifiers: int = 1,
        threads: str = "auto",
        verifier_flags: Sequence[str] = (),
        speculator_flags: Sequence[str] = (),
        gateway_flags: Sequence[str] = (),
        tls: Tls | None = None,
        log_folder: Path | None = None,
        start_seconds: float = 900.0,
        on_line: OnLine = lambda role, line: None,
        on_progress: OnProgress = lambda progress: None,
    ) -> None:
        self._fixed_ports = ports
        self.ports = ports or Ports.free(num_verifiers)
        self.hosts = hosts
        # Emulated devices compute nothing; on a core of its own a service's threads would only wait for each other.
        cores = sorted(os.sched_getaffinity(0)) if emulate is None or threads != "auto" else []
        placement = place(threads, cores)
        speculator = self.speculator_address if draft is not None else ""
        emulation = [] if emulate is None else ["--emulate", emulate]
        tokenizer = target if emulate is None else str(tokenizer_folder(load_profile(emulate).vocabulary))
        self._flags: dict[str, list[str]] = {}
        if draft is not None:
            self._flags["speculator"] = [
                *("--host", hosts.speculator, "--port", str(self.ports.speculator)),
                *("--draft", draft, "--target", target),
                *placement.speculator.flags(),
                *emulation,
                *speculator_flags,
            ]
        for name, port in self.ports.verifiers.items():
            self._flags[name] = [
                *("--host", hosts.verifier, "--port", str(port)),
                *("--target", target, "--speculator", speculator),
                *placement.verifier.flags(),
                *emulation,
                *verifier_flags,
            ]
        verifiers = ",".join(map(self.address, self.ports.verifiers))
        self._flags["gateway"] = [
            *("--host", hosts.gateway, "--port", str(self.ports.gateway)),
            *("--http-port", "none" if self.ports.http is None else str(self.ports.http)),
            *("--verifier", verifiers, "--tokenizer", tokenizer),
            *gateway_flags,
        ]
        self._tls = tls
        self._log_folder = log_folder
        self._start_seconds = start_seconds
        self._on_line = on_line
        self._on_progress = on_progress
        self.processes: dict[str, ServiceProcess] = {}

    @property
    def gateway_address(self) -> str:
        """host:port of the gateway."""
        return self.address("gateway")

    @property
    def http_url(self) -> str:
        """Where OpenAI's API is: what its clients call base_url. Only of a gateway that has an HTTP port."""
        assert self.ports.http is not None, "the gateway has no HTTP port"
        return f"http://{joined(dialled(self.hosts.gateway), self.ports.http)}/v1"

    @property
    def verifier_address(self) -> str:
        """host:port of the first verifier."""
        return self.address("verifier")

    @property
    def speculator_address(self) -> str:
        """host:port of the speculator, whether one is started or not."""
        return self.address("speculator")

    def address(self, name: str) -> str:
        """host:port by which this machine reaches a service, by its name."""
        return joined(dialled(self.hosts.of(name)), self.ports.of(name))

    def __enter__(self) -> Self:
        if self._fixed_ports is not None:
            self._fixed_ports.check_free(self.hosts, with_speculator="speculator" in self._flags)
        try:
            for role in self._flags:
                self.start(role)
            # A draft that cannot be had, or a second verifier: whoever asked for it wants to know now.
            self._wait_until_serving(needed=self.processes)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, name: str) -> None:
        """Start one service; it need not serve yet."""
        log = None if self._log_folder is None else self._log_folder / f"{name}.log"
        self.processes[name] = ServiceProcess(
            name, self._flags[name], on_line=self._on_line, on_progress=self._on_progress, log=log
        )

    def restart(self, role: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End one service with the signal, start it anew and wait until it serves; ServiceDied where it does not."""
        self.end(role, number)
        self.start(role)
        self.wait_until_serving()
        process = self.processes[role]
        if process.exit_code is not None:
            raise ServiceDied(f"the {role} ended with {process.describe_end()}\n{process.last_words}".rstrip())

    def end(self, role: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End one service and leave the others alone."""
        process = self.processes[role]
        process.send(number)
        process.wait(_STOP_SECONDS)
        process.kill()

    def wait_until_serving(self) -> None:
        """Wait for every service that lives; raises ServiceDied as `check_alive` does, or where time is up."""
        self._wait_until_serving(needed=())

    def _wait_until_serving(self, needed: Collection[str]) -> None:
        """The same, and ServiceDied for any of `needed` that ends before all serve."""
        deadline = time.monotonic() + self._start_seconds
        waiting = list(self.processes)
        while waiting:
            self._check_alive(needed)
            # A speculator that died leaves a trio that serves undrafted.
            waiting = [
                role
                for role in waiting
                if self.processes[role].exit_code is None and not is_serving(self.address(role), self._tls)
            ]
            if waiting and time.monotonic() > deadline:
                raise ServiceDied(f"not serving after {self._start_seconds:g} s: {', '.join(waiting)}")
            if waiting:
                time.sleep(_POLL_SECONDS)
        self._check_alive(needed)  # who died in the last look was not waited for

    def check_alive(self) -> None:
        """Raises ServiceDied where all verifiers, or the gateway, have ended."""
        self._check_alive(needed=())

    def _check_alive(self, needed: Collection[str]) -> None:
        verifiers = list(self.ports.verifiers)
        if any(self.processes[name].exit_code is None for name in verifiers):
            verifiers = []
        for name in dict.fromkeys((*needed, *verifiers, "gateway")):
            process = self.processes[name]
            if process.exit_code is not None:
                raise ServiceDied(
                    f"the {process.name} ended with {process.describe_end()}\n{process.last_words}".rstrip()
                )

    def stop(self) -> None:
        """End all: SIGTERM, time to drain, SIGKILL. Nothing is left running, whatever interrupts the wait."""
        try:
            for process in self.processes.values():
                process.send(signal.SIGTERM)
            deadline = time.monotonic() + _STOP_SECONDS
            for process in self.processes.values():
                process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for process in self.processes.values():
                process.kill()
