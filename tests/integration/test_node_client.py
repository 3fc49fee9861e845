"""The contract from another language: Node, with nothing but the .proto files."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from saguaro.cli.trio import Trio
from saguaro.client import Client

HERE = Path(__file__).parents[1] / "node"
PROTO = Path(__file__).parents[2] / "proto"
CHAT = [{"role": "user", "content": "Größe 🌵?"}]
CANCELLED, INVALID_ARGUMENT, DEADLINE_EXCEEDED = 1, 3, 4  # gRPC's numbers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None or shutil.which("npm") is None, reason="node is not installed"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node")
    for file in HERE.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm cannot install @grpc/grpc-js: {done.stderr.strip().splitlines()[-1:]}")
    return folder / "client.js"


def test_node_lists_tokenizes_streams_is_refused_cancels_and_runs_out_of_time(program: Path, tiny_trio: Trio) -> None:
    command = ["node", str(program), str(PROTO), tiny_trio.gateway_address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    with Client(tiny_trio.gateway_address) as client:
        [served] = client.list_models()
        ours = client.generate(CHAT, max_tokens=24, seed=(1 << 64) - 1, temperature=0.5).finish()
    assert said["model"] == served.model.name
    assert said["detokenized"] == "Größe 🌵?"
    assert said["seed"] == str((1 << 64) - 1), "no digit is lost to a double"
    assert (said["text"], said["token_ids"]) == (ours.text, list(ours.token_ids))
    assert all(name.startswith("TOKEN_PROVENANCE_") for name in said["provenance"])
    assert said["reason"].startswith("FINISH_REASON_")
    assert said["refused"][0] == INVALID_ARGUMENT
    assert "temperature is -1" in said["refused"][1]
    assert (said["cancelled"], said["late"]) == (CANCELLED, DEADLINE_EXCEEDED)
