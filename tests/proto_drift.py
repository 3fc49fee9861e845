"""`python -m tests.proto_drift`: whether saguaro/v1 is what `make proto` would make of proto/. Exit code 1 if not."""

from __future__ import annotations

import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parents[1]
GENERATED = Path("saguaro/v1")


def generate(out: Path) -> None:
    """The generated code of every contract file, under `out`."""
    sources = sorted(str(file) for file in (ROOT / "proto" / GENERATED).glob("*.proto"))
    arguments = [f"--{kind}_out={out}" for kind in ("python", "grpc_python", "pyi")]
    # Well-known types come with the compiler.
    included = [str(ROOT / "proto"), str(resources.files("grpc_tools") / "_proto")]
    code = protoc.main(["protoc", *(f"-I{folder}" for folder in included), *arguments, *sources])
    if code != 0:
        raise RuntimeError(f"protoc failed with exit code {code}")


def drifted(made: Path, kept: Path) -> list[str]:
    """Names of files that differ, or that only one of the folders has."""
    names = {file.name for folder in (made, kept) for file in folder.glob("*_pb2*")}
    return sorted(name for name in names if _content(made / name) != _content(kept / name))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        generate(out)
        names = drifted(out / GENERATED, ROOT / GENERATED)
    for name in names:
        sys.stderr.write(f"{GENERATED / name} is not what proto/ says; run `make proto`\n")
    return 1 if names else 0


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
