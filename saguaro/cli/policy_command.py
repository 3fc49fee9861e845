"""`saguaro policy`: what a deployment wants of speculation, read and changed at its gateway."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from saguaro.cli.connection import ApiKey, Connection, TlsCa

if TYPE_CHECKING:
    from saguaro.client import ClassPolicy, PolicyReport, TrafficClass


class ClassName(StrEnum):
    """A traffic class, or all of them."""

    LATENCY = "latency"
    BALANCED = "balanced"
    THROUGHPUT = "throughput"
    ALL = "all"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(policy)


def policy(
    traffic_class: Annotated[
        ClassName, typer.Argument(metavar="CLASS", help="latency, balanced, throughput or all: whose bounds change.")
    ] = ClassName.ALL,
    max_lookahead: Annotated[
        str | None, typer.Option(metavar="N", help="Most draft tokens of a speculation, 0 to 16, or auto.")
    ] = None,
    break_even_batch: Annotated[
        str | None,
        typer.Option(metavar="B", help="b*: below this many sequences a miss waits for a draft; inf, 0, or auto."),
    ] = None,
    acceptance: Annotated[
        str | None, typer.Option(metavar="MODE", help="Of requests that name none: coupled, rejection, or auto.")
    ] = None,
    address: Annotated[
        str, typer.Option("--server", "--address", help="host:port of a running gateway.")
    ] = "127.0.0.1:50051",
    api_key: ApiKey = None,
    tls_ca: TlsCa = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """The policy by traffic class and which verifiers keep to it; with bounds, after changing them.

    Bounds that are not named stay. A change is in force within a second, and until the gateway restarts.
    """
    from saguaro.cli.asking import exit_code_of
    from saguaro.client import NO_RETRY

    named = {"max_lookahead": max_lookahead, "break_even_batch": break_even_batch, "acceptance": acceptance}
    bounds = {field: value for field, value in named.items() if value is not None}

    def work() -> None:
        with Connection(address, api_key, tls_ca).client(NO_RETRY) as client:
            report = client.get_policy()
            if bounds:
                report = client.set_policy(_changes(report, traffic_class, bounds))
            _show(report, as_json=as_json)

    raise typer.Exit(exit_code_of("policy", address, work))


def _changes(report: PolicyReport, chosen: ClassName, bounds: dict[str, str]) -> dict[TrafficClass, ClassPolicy]:
    """Whole classes, as the gateway replaces them: those chosen, as they are but for `bounds`."""
    from pydantic import ValidationError

    from saguaro.config import PolicySettings, policy_document
    from saguaro.errors import InvalidRequest

    classes = policy_document(report.policy)
    wanted = classes if chosen is ClassName.ALL else {chosen.value: classes[chosen.value]}
    try:
        return PolicySettings.model_validate({name: fields | bounds for name, fields in wanted.items()}).by_class()
    except ValidationError as error:
        (_, field, *_), message, value = error.errors()[0]["loc"], error.errors()[0]["msg"], error.errors()[0]["input"]
        flag = "--" + str(field).replace("_", "-")
        raise InvalidRequest(str(field), f"{flag} is {value}: {message[0].lower()}{message[1:]}, or auto") from None


def _show(report: PolicyReport, *, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from saguaro.config import policy_document, policy_report_document

    if as_json:
        json.dump(policy_report_document(report), sys.stdout)
        sys.stdout.write("\n")
        return
    table = Table("class", "max lookahead", "break-even batch", "acceptance")
    for name, fields in policy_document(report.policy).items():
        table.add_row(name, *map(str, fields.values()))
    console = Console()
    console.print(table)
    for item in report.verifiers:
        state = "in force" if item.in_force else f"not in force: {item.reason}"
        console.print(f"{item.address}: {state}", markup=False, highlight=False, soft_wrap=True)
