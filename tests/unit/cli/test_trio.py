"""Three processes with one owner, the services faked."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from saguaro.cli.placement import Placement, TrioPlacement, place
from saguaro.cli.ports import Ports
from saguaro.cli.trio import ServiceDied, Trio
from saguaro.cli.wiring import TrioOptions, Wiring
from saguaro.errors import ConfigurationError
from saguaro.progress import Progress
from tests.unit.cli.upping import end_of, start_up


def is_gone(pid: int) -> bool:
    """No process, or one that ended and waits to be collected by another parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 20
    while not all(is_gone(pid) for pid in pids):
        assert time.monotonic() < deadline, "processes outlived their owner"
        time.sleep(0.02)


@pytest.mark.usefixtures("fake_services")
def test_a_trio_serves_inside_of_the_block_and_is_gone_after_it(tmp_path: Path) -> None:
    steps: list[Progress] = []
    with Trio(log_folder=tmp_path, on_progress=steps.append) as trio:
        pids = [process.pid for process in trio.processes.values()]
        for address in (trio.gateway_address, trio.verifier_address, trio.speculator_address):
            host, _, port = address.partition(":")
            socket.create_connection((host, int(port)), timeout=5).close()
    wait_until_gone(pids)
    assert {step.role for step in steps} == {"speculator", "verifier", "gateway"}
    assert "serving on" in (tmp_path / "verifier.log").read_text()


@pytest.mark.usefixtures("fake_services")
def test_without_a_speculator_the_trio_goes_on_and_it_can_be_started_again() -> None:
    with Trio() as trio:
        trio.end("speculator", signal.SIGKILL)
        trio.check_alive()
        assert trio.processes["speculator"].describe_end() == "signal SIGKILL"
        before = trio.processes["verifier"].pid
        trio.restart("speculator")
        assert trio.processes["speculator"].exit_code is None
        assert trio.processes["verifier"].pid == before


@pytest.mark.usefixtures("fake_services")
def test_a_dead_verifier_is_reported_with_how_it_ended() -> None:
    with Trio() as trio:
        trio.end("verifier", signal.SIGKILL)
        with pytest.raises(ServiceDied, match="the verifier ended with signal SIGKILL"):
            trio.check_alive()


@pytest.mark.usefixtures("fake_services")
def test_a_verifier_that_cannot_start_ends_the_start_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DIES", "verifier")
    trio = Trio()
    with pytest.raises(ServiceDied, match="the verifier ended with exit code 3\nno model at /x"), trio:
        pass
    assert all(process.exit_code is not None for process in trio.processes.values())


@pytest.mark.usefixtures("fake_services")
def test_a_speculator_that_cannot_start_ends_the_start_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DIES", "speculator")
    trio = Trio()
    with pytest.raises(ServiceDied, match="the speculator ended with exit code 3\nno model at /x"), trio:
        pass
    assert all(process.exit_code is not None for process in trio.processes.values())


@pytest.mark.usefixtures("fake_services")
def test_without_a_draft_no_speculator_is_started() -> None:
    with Trio(draft=None) as trio:
        assert set(trio.processes) == {"verifier", "gateway"}


@pytest.mark.usefixtures("fake_services")
def test_of_two_verifiers_either_may_die_and_the_gateway_knows_both(tmp_path: Path) -> None:
    steps: list[Progress] = []
    with Trio(num_verifiers=2, log_folder=tmp_path, on_progress=steps.append) as trio:
        assert set(trio.processes) == {"speculator", "verifier", "verifier-2", "gateway"}
        assert {step.role for step in steps} == set(trio.processes)
        command = Path(f"/proc/{trio.processes['gateway'].pid}/cmdline").read_text().split("\0")
        both = f"{trio.address('verifier')},{trio.address('verifier-2')}"
        assert command[command.index("--verifier") + 1] == both
        trio.end("verifier", signal.SIGKILL)
        trio.check_alive()
        trio.end("verifier-2", signal.SIGKILL)
        with pytest.raises(ServiceDied, match="the verifier ended with signal SIGKILL"):
            trio.check_alive()


def test_the_usual_ports_of_more_verifiers_follow_the_first_one_s() -> None:
    ports = Wiring(TrioOptions(ports="fixed", port=1, http_port="2", num_verifiers=3)).ports
    assert (ports.gateway, ports.http) == (1, 2)
    assert ports.verifiers == {"verifier": 50061, "verifier-2": 50062, "verifier-3": 50063}
    assert (ports.of("gateway"), ports.of("speculator"), ports.of("verifier-3")) == (1, 50071, 50063)


def test_a_taken_port_is_named_with_its_service() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"the verifier's port {port} cannot be had"):
            Ports(gateway=Ports.free().gateway, verifier=port, speculator=Ports.free().speculator).check_free()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_up_with_code_0_and_all_its_services(number: signal.Signals) -> None:
    process, children, _ = start_up("--ports", "auto")
    process.send_signal(number)
    code, rest = end_of(process)
    assert (code, "Traceback" in rest) == (0, False)
    wait_until_gone(children)


def test_services_die_with_a_parent_that_had_no_time_to_end_them() -> None:
    process, children, _ = start_up("--ports", "auto")
    process.kill()
    wait_until_gone(children)
    end_of(process)


def test_up_warns_of_a_dead_speculator_and_ends_with_code_1_for_a_dead_verifier() -> None:
    process, children, _ = start_up("--ports", "auto")
    assert process.stderr is not None
    by_role = {_role(pid): pid for pid in children}
    os.kill(by_role["speculator"], signal.SIGKILL)
    warning = next(line for line in process.stderr if "undrafted" in line)
    assert "the speculator ended with signal SIGKILL" in warning
    os.kill(by_role["verifier"], signal.SIGKILL)
    code, rest = end_of(process)
    assert code == 1
    assert "saguaro: the verifier ended with signal SIGKILL" in rest
    wait_until_gone(children)


def _role(pid: int) -> str:
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return "speculator" if "--draft" in arguments else "gateway" if "--tokenizer" in arguments else "verifier"


@pytest.mark.parametrize(
    ("threads", "cores", "verifier", "speculator"),
    [
        ("auto", [5], Placement(None, 1), Placement(None, 1)),
        ("auto", [0, 1], Placement("0", 1), Placement("1", 1)),
        ("auto", [0, 1, 2, 3], Placement("0,1,2", 3), Placement("3", 1)),
        ("auto", list(range(8)), Placement("0,1,2,3,4,5", 6), Placement("6,7", 2)),
        ("2,1", [0, 1, 2, 3], Placement("0,1", 2), Placement("2", 1)),
        ("4,2", [0, 1], Placement(None, 4), Placement(None, 2)),
    ],
)
def test_verifier_and_speculator_share_no_core_where_there_are_enough(
    threads: str, cores: list[int], verifier: Placement, speculator: Placement
) -> None:
    assert place(threads, cores) == TrioPlacement(verifier, speculator)


@pytest.mark.parametrize("threads", ["", "3", "a,b", "0,1", "1,2,3", "-1,2"])
def test_threads_that_are_no_pair_are_refused(threads: str) -> None:
    with pytest.raises(ConfigurationError, match="give auto, or"):
        place(threads, [0, 1])
