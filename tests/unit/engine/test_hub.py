"""A model from the hub: a small server on the loopback speaks as much of the hub's API as a download takes."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from saguaro.engine.loading import load_model, resolve_folder
from saguaro.errors import ConfigurationError
from tests.tiny_models import write_tiny_model

COMMIT = "5f0b02c75b57c5855da9ae460ce51323ea669d8a"
HUB_ID = "nobody/cactus"


class Hub:
    """Serves the files of one repository; `fetched` lists those whose content went out."""

    def __init__(self, repository: Path) -> None:
        self.repository = repository
        self.fetched: list[str] = []
        self.withheld: set[str] = set()

    def files(self) -> list[tuple[str, int]]:
        """Name and bytes of each."""
        files = sorted(file for file in self.repository.rglob("*") if file.is_file())
        return [(str(file.relative_to(self.repository)), file.stat().st_size) for file in files]


@contextmanager
def serving(hub: Hub) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            prefix = f"/{HUB_ID}/resolve/{COMMIT}/"
            if self.path.startswith(f"/api/models/{HUB_ID}/tree/{COMMIT}"):
                tree = [{"type": "file", "path": name, "size": size, "oid": "0" * 40} for name, size in hub.files()]
                self._send(200, json.dumps(tree).encode(), with_body)
            elif self.path.startswith(f"/api/models/{HUB_ID}/revision/"):
                siblings = [{"rfilename": name} for name, _ in hub.files()]
                self._send(200, json.dumps({"id": HUB_ID, "sha": COMMIT, "siblings": siblings}).encode(), with_body)
            elif self.path.startswith(prefix) and self.path.removeprefix(prefix) not in hub.withheld:
                name = self.path.removeprefix(prefix)
                if with_body:
                    hub.fetched.append(name)
                self._send(200, (hub.repository / name).read_bytes(), with_body)
            else:
                self._send(404, b"{}", with_body)

        def _send(self, status: int, body: bytes, with_body: bool) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """With a model in two shards, the same in one more file, and in other forms in folders."""
    repository = write_tiny_model(tmp_path / "repository", seed=3)
    weights = load_file(repository / "model.safetensors")
    (repository / "model.safetensors").rename(repository / "consolidated.safetensors")
    shards = {name: f"model-{index % 2 + 1:05}-of-00002.safetensors" for index, name in enumerate(weights)}
    for shard in set(shards.values()):
        save_file({name: weights[name] for name in weights if shards[name] == shard}, repository / shard)
    (repository / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    (repository / "original").mkdir()
    (repository / "original" / "model.safetensors").write_bytes(b"of another kind")
    (repository / "original" / "params.json").write_text("{}")
    hub = Hub(repository)
    cache = tmp_path / "cache"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with serving(hub) as endpoint:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"  # made of the endpoint at import
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub


def test_only_the_files_that_are_loaded_are_fetched(hub: Hub):
    loaded = load_model(HUB_ID, dtype="float32", device="cpu")
    assert loaded.identity.name == "cactus"
    weights = {name for name in hub.fetched if name.endswith(".safetensors")}
    assert weights == {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
    assert not any("/" in name for name in hub.fetched)


def test_a_second_start_fetches_nothing(hub: Hub):
    first = resolve_folder(HUB_ID)
    hub.fetched.clear()
    assert resolve_folder(HUB_ID) == first
    assert hub.fetched == []


def test_a_download_that_was_cut_off_goes_on_at_the_next_start(hub: Hub):
    hub.withheld.add("model-00002-of-00002.safetensors")
    with pytest.raises(ConfigurationError, match="no model 'nobody/cactus'"):
        load_model(HUB_ID, dtype="float32", device="cpu")
    hub.withheld.clear()
    hub.fetched.clear()
    load_model(HUB_ID, dtype="float32", device="cpu")
    assert hub.fetched == ["model-00002-of-00002.safetensors"]
