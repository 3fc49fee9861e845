"""Which commands need more than the base package, and what is told where it is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from saguaro.errors import ConfigurationError

# Extra of pyproject.toml to the modules that it must have brought. A module says that its distribution is there.
MODULES: dict[str, tuple[str, ...]] = {
    "gateway": ("grpc_health", "grpc_reflection", "tokenizers", "jinja2", "prometheus_client", "starlette", "uvicorn"),
    "services": ("torch", "numpy", "transformers", "safetensors", "gguf", "accelerate", "llguidance"),
}
# Command to its extras.
NEEDS: dict[str, tuple[str, ...]] = {
    "gateway": ("gateway",),
    "verifier": ("gateway", "services"),
    "speculator": ("gateway", "services"),
    "bench": ("gateway", "services"),
    "distill": ("gateway", "services"),
}


def require_packages(*commands: str) -> None:
    """Raises ConfigurationError that names the extra, where one of these commands could not even start.

    Nothing is imported: what is there is looked up.
    """
    for command in commands:
        for extra in NEEDS[command]:
            missing = _missing(MODULES[extra])
            if missing:
                raise ConfigurationError(
                    f"`saguaro {command}` needs the extra `{NEEDS[command][-1]}`, of which {', '.join(missing)} is not "
                    f"installed. In the source folder: pip install '.[{NEEDS[command][-1]}]'"
                )


def _missing(modules: Sequence[str]) -> list[str]:
    return [name for name in modules if importlib.util.find_spec(name) is None]
