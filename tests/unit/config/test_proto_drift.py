"""The generated code is what the contract says, and the check would notice if it were not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import proto_drift

pytest.importorskip("grpc_tools")


def test_generated_code_is_what_the_contract_says() -> None:
    assert proto_drift.main() == 0


def test_a_changed_a_missing_and_a_superfluous_file_are_named(tmp_path: Path) -> None:
    made, kept = tmp_path / "made", tmp_path / "kept"
    for folder in (made, kept):
        folder.mkdir()
        (folder / "same_pb2.py").write_text("1")
        (folder / "changed_pb2.py").write_text(folder.name)
    (made / "missing_pb2.py").write_text("1")
    (kept / "old_pb2.pyi").write_text("1")
    assert proto_drift.drifted(made, kept) == ["changed_pb2.py", "missing_pb2.py", "old_pb2.pyi"]
