"""From flags, environment and settings file to the trio that they ask for: each value is obeyed, or refused by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from saguaro.cli.ports import Hosts, Ports, dialled, joined
from saguaro.config import (
    DialTlsSettings,
    GatewaySettings,
    ListenTlsSettings,
    ServiceSettings,
    SpeculatorSettings,
    VerifierSettings,
    environment_name,
    flag_name,
    read_settings,
)
from saguaro.errors import ConfigurationError
from saguaro.model_paths import DEMO_DRAFT, DEMO_TARGET, is_path

# Settings that say where a service is found; a trio of a command's own is found by that command alone.
_PLACES = ("host", "port", "http_port", "admin_host", "admin_port", "metrics_port", "verifier", "speculator")
_NO_DRAFT = "none"


@dataclass(frozen=True, slots=True)
class TrioOptions:
    """What the commands that start a trio let a user choose; what is None is left to environment and file.

    `ports`: fixed takes the usual ones where no other source names any, auto free ones; own is for a trio that one
    command starts for itself: free ports of the loopback, whatever the sources say.
    """

    target: str | None = None
    draft: str | None = None  # "none": no speculator
    emulate: str | None = None
    threads: str | None = None
    lookahead: int | None = None
    budget: int | None = None
    policy: str | None = None
    config: Path | None = None
    ports: Literal["fixed", "auto", "own"] = "own"
    port: int | None = None  # of the gateway
    http_port: str | None = None  # likewise; "none" for no HTTP
    num_verifiers: int = 1


class Wiring:
    """The trio that `options` ask for. Everything raises ConfigurationError for what contradicts itself."""

    def __init__(self, options: TrioOptions) -> None:
        self._options = options
        shared = [] if options.config is None else ["--config", str(options.config)]
        of_verifier = _flags(lookahead=options.lookahead, budget=options.budget, policy=options.policy)
        of_gateway = _flags(port=options.port, http_port=options.http_port)
        self.verifier = read_settings(VerifierSettings, [*shared, *of_verifier])
        self.speculator = read_settings(SpeculatorSettings, shared)
        self.gateway = read_settings(GatewaySettings, [*shared, *of_gateway])
        self._shared, self._verifier_flags = shared, of_verifier

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `Trio`."""
        self._refuse()
        emulate, target, draft = self._models()
        return {
            "target": target,
            "draft": draft,
            "emulate": emulate,
            "threads": self._options.threads or "auto",
            "ports": self.ports,
            "hosts": self.hosts,
            "verifier_flags": [*self._shared, *self._verifier_flags, *self._model_flags(self.verifier)],
            "speculator_flags": [*self._shared, *self._model_flags(self.speculator)],
            "gateway_flags": [*self._shared, *self._gateway_flags()],
        }

    @cached_property
    def ports(self) -> Ports:
        """Those that a source names, the usual ones, or free ones."""
        count = self._options.num_verifiers - 1
        first = self._port(self.verifier, "port") or 0
        return Ports(
            gateway=self._port(self.gateway, "port") or 0,
            verifier=first,
            speculator=self._port(self.speculator, "port") or 0,
            http=self._port(self.gateway, "http_port"),
            more_verifiers=tuple(first + number if first else 0 for number in range(1, count + 1)),
        ).with_free()

    @cached_property
    def hosts(self) -> Hosts:
        """As the sources say."""
        return Hosts() if self._is_own else Hosts(self.gateway.host, self.verifier.host, self.speculator.host)

    @property
    def not_used(self) -> list[str]:
        """Of a command's own trio, what a source names and this trio does without, as a sentence each."""
        if not self._is_own:
            return []
        settings = (self.verifier, self.speculator, self.gateway)
        named = [self._source(item, field) for item in settings for field in _PLACES if _is_named(item, field)]
        return [f"not used here, since this trio is on free ports of its own: {', '.join(named)}"] if named else []

    @property
    def _is_own(self) -> bool:
        return self._options.ports == "own"

    def _port(self, settings: ServiceSettings, field: str) -> int | None:
        """0 where a free one is to be taken; None for none at all."""
        value: int | None = getattr(settings, field)
        is_given = _is_named(settings, field) and not self._is_own
        return value if is_given or self._options.ports == "fixed" or value is None else 0

    def _models(self) -> tuple[str | None, str, str | None]:
        """Profile to emulate, target and draft."""
        options = self._options
        emulate = self._agreed("emulate", options.emulate)
        target = self._agreed("target", options.target)
        draft = options.draft or (self.speculator.draft if _is_named(self.speculator, "draft") else None)
        for flag, value in (("target", target), ("draft", None if draft == _NO_DRAFT else draft)):
            if emulate is not None and value is not None:
                raise ConfigurationError(
                    f"the {flag} {value} has no place beside the emulated pair {emulate}; leave out one of the two"
                )
        target = target or DEMO_TARGET
        if draft is None:
            draft = DEMO_DRAFT if target == DEMO_TARGET else _NO_DRAFT
        if emulate is None:
            _check_folder("target", target)
            _check_folder("draft", draft)
        return emulate, target, None if draft == _NO_DRAFT else draft

    def _agreed(self, field: str, flag: str | None) -> str | None:
        """What flag, else the settings of verifier and speculator say, which must say the same; None for nothing."""
        if flag is not None:
            return flag
        named = {
            self._source(item, field): str(getattr(item, field))
            for item in (self.verifier, self.speculator)
            if _is_named(item, field) and getattr(item, field) is not None
        }
        if len(set(named.values())) > 1:
            both = " and ".join(f"{source} is {value}" for source, value in named.items())
            raise ConfigurationError(f"{both}; a trio has one {field}")
        return next(iter(named.values()), None)

    def _model_flags(self, settings: VerifierSettings | SpeculatorSettings) -> Iterator[str]:
        # They come after those of the trio's own placement, and win.
        names_threads = _is_named(settings, "threads") and self._options.threads is None
        if names_threads:
            yield from ("--threads", str(settings.threads).lower())
        if names_threads or _is_named(settings, "cores"):
            # Threads of the user's own number are not squeezed onto the cores that we would have chosen.
            yield from ("--cores", str(settings.cores).lower())
        if self._is_own:
            yield from ("--metrics-port", "none")

    def _gateway_flags(self) -> Iterator[str]:
        if _is_named(self.gateway, "tokenizer"):
            yield from ("--tokenizer", self.gateway.tokenizer)
        if self._is_own:
            yield from ("--admin-port", "none")

    def _refuse(self) -> None:
        """What this trio cannot do, it must not seem to do."""
        for settings in (self.verifier, self.speculator, self.gateway):
            for field in (*ListenTlsSettings.model_fields, *DialTlsSettings.model_fields):
                if _is_named(settings, field) and getattr(settings, field) is not None:
                    raise ConfigurationError(
                        f"{self._source(settings, field)} asks for TLS, which a trio started as one does not speak; "
                        f"start `saguaro speculator`, `saguaro verifier` and `saguaro gateway`, each with that file"
                    )
        if self._is_own:
            return
        verifiers = [joined(dialled(self.hosts.verifier), port) for port in self.ports.verifiers.values()]
        speculator = joined(dialled(self.hosts.speculator), self.ports.speculator)
        for item, field, ours in (
            (self.gateway, "verifier", ",".join(verifiers)),
            (self.verifier, "speculator", speculator),
        ):
            if _is_named(item, field) and getattr(item, field) not in (ours, ""):
                raise ConfigurationError(
                    f"{self._source(item, field)} is {getattr(item, field)}, but this trio has its own at {ours}; "
                    f"leave it out, or start `saguaro {item.role}` alone"
                )
        if self.verifier.metrics_port and self._options.num_verifiers > 1:
            raise ConfigurationError(
                f"{self._source(self.verifier, 'metrics_port')} is {self.verifier.metrics_port}, which cannot be the "
                f"port of {self._options.num_verifiers} verifiers; 0 gives each a free one"
            )

    def _source(self, settings: ServiceSettings, field: str) -> str:
        """Who named the setting, for messages."""
        variable = environment_name(type(settings), field)
        if any(name.upper() == variable for name in os.environ):
            return variable
        file = self._options.config or os.environ.get("SAGUARO_CONFIG")
        return f"[{settings.role}] {field} of {file}"


def _is_named(settings: ServiceSettings, field: str) -> bool:
    return field in settings.model_fields_set


def _flags(**values: object) -> list[str]:
    return [part for name, value in values.items() if value is not None for part in (flag_name(name), str(value))]


def _check_folder(what: str, spec: str) -> None:
    """A folder that is none fails now, and not after the other model has been loaded."""
    folder = Path(spec).expanduser()
    if is_path(spec) and not folder.is_dir():
        raise ConfigurationError(f"the {what} {spec} is no folder on this machine; give one that holds a model")
    if folder.is_dir() and spec not in (DEMO_TARGET, DEMO_DRAFT) and not (folder / "config.json").is_file():
        raise ConfigurationError(f"the {what} {spec} holds no model: there is no config.json in it")
