"""Models from the Hugging Face hub: the files that are loaded, and no others."""

from __future__ import annotations

from pathlib import Path

from saguaro.engine.weight_files import index_file, wanted_names, weight_files
from saguaro.errors import ConfigurationError


def is_whole(snapshot: Path) -> bool:
    """Whether nothing that is loaded is missing in a snapshot: a download may have been cut off."""
    try:
        weight_files(snapshot)
    except ConfigurationError:
        return False
    return (snapshot / "config.json").is_file()


def download(hub_id: str) -> Path:
    """Snapshot of the main revision, in the hub's own cache. Goes on where an earlier download was cut off.

    Raises ConfigurationError where the hub does not have it or cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        # First what is small, at the top of the repository: it says which of the large files are the model.
        folder = Path(snapshot_download(hub_id, allow_patterns=["*.json", "*.jinja"], ignore_patterns=["*/*"]))
        wanted = wanted_names(folder, index_file(folder))
        snapshot_download(hub_id, revision=folder.name, allow_patterns=list(wanted))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigurationError(
            f"no model {hub_id!r}: expected demo-target, demo-draft, an existing folder, or a model that the hub has "
            f"({type(error).__name__}: {str(error).splitlines()[0]})"
        ) from error
    return folder
