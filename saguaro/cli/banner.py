"""What `saguaro up` says of itself: where each service listens, who may come, how to ask."""

from __future__ import annotations

from collections.abc import Iterator

from saguaro.cli.ports import Ports, dialled, is_loopback, is_wildcard, joined
from saguaro.cli.trio import Trio
from saguaro.config import GatewaySettings


def banner(trio: Trio, gateway: GatewaySettings) -> Iterator[str]:
    """Lines, of a trio that serves."""
    yield "saguaro is up; Ctrl-C ends it"
    for name in trio.processes:
        yield _line(name, trio.hosts.of(name), joined(trio.hosts.of(name), trio.ports.of(name)))
    if trio.ports.http is None:
        yield _line("OpenAI API", trio.hosts.gateway, "none: http_port is none", is_listening=False)
    else:
        yield _line("OpenAI API", trio.hosts.gateway, trio.http_url)
    if gateway.admin_port:
        yield _line("admin", gateway.admin_host, f"http://{joined(dialled(gateway.admin_host), gateway.admin_port)}")
    yield from _warnings(trio, gateway)
    address = (
        "" if trio.gateway_address == joined("127.0.0.1", Ports().gateway) else f"--address {trio.gateway_address} "
    )
    key = "" if gateway.keys_file is None else "--api-key KEY "
    yield f'ask it: saguaro generate {address}{key}"What is a saguaro?"'


def _line(name: str, host: str, where: str, *, is_listening: bool = True) -> str:
    wide = ", on every address of this machine" if is_listening and is_wildcard(host) else ""
    return f"  {name:<11} {where}{wide}"


def _warnings(trio: Trio, gateway: GatewaySettings) -> Iterator[str]:
    """Of doors that others can reach and nothing guards."""
    if not is_loopback(trio.hosts.gateway) and gateway.keys_file is None:
        yield (
            f"WARNING: the gateway listens on {trio.hosts.gateway} and asks for no API key: anyone who reaches this "
            "machine may use it. Make keys with `saguaro keys add`, and set [gateway] keys_file"
        )
    for role in ("verifier", "speculator"):
        if role in trio.processes and not is_loopback(trio.hosts.of(role)):
            yield (
                f"WARNING: the {role} listens on {trio.hosts.of(role)} and knows no API keys: anyone who reaches this "
                f"machine may use it. Leave out [{role}] host, or start the roles alone with TLS"
            )
    if gateway.admin_port is not None and not is_loopback(gateway.admin_host):
        yield (
            f"WARNING: the admin port listens on {gateway.admin_host} and knows no API keys: anyone who reaches this "
            "machine may set policies. Leave out [gateway] admin_host"
        )
