"""Which models the engine can serve, told by config and class before any weights are read.

What only a forward can tell, `saguaro.engine.proof` finds out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

from saguaro.errors import ConfigurationError
from saguaro.model_paths import refuse_lfs_pointer

_LAYERS_WITH_KV = {"full_attention", "sliding_attention"}
_SAME_IN_ALL_LAYERS = ("num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window")


def read_config(folder: Path) -> Any:
    """The config of the model in `folder`, of a type that transformers knows.

    Raises ConfigurationError for anything else. Code that a folder brings with it is never run.
    """
    file = folder / "config.json"
    refuse_lfs_pointer(file)
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each family checks its fields in its own way
        if _brings_its_own_code(file):
            raise ConfigurationError(
                f"the model at {folder} needs Python code of its own ('auto_map' in config.json), which is never run "
                "here; use a model of a family that transformers itself knows"
            ) from error
        raise ConfigurationError(f"{file} is not the config of a known model: {error}") from error


def causal_model_class(config: Any) -> Any:
    """transformers' class for a model with this config, one that the engine can serve as far as the class can tell.

    Raises ConfigurationError that names the family and the reason.
    """
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ConfigurationError(f"a model of type {config.model_type} is no causal language model; no other is served")
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    require_served(model_class, config)
    return model_class


def require_served(model_class: type, config: Any) -> None:
    """Raises ConfigurationError, naming the family and the reason, for what the engine cannot serve.

    `config`: as the model was loaded with it, its text part inside of it or not.
    """
    name, text = model_class.__name__, text_config(config)
    if getattr(config, "is_encoder_decoder", False):
        raise ConfigurationError(f"{name} reads its prompt with an encoder; the engine serves decoder-only models")
    if not getattr(model_class, "_supports_attention_backend", False):
        raise ConfigurationError(
            f"{name} cannot run on paged attention: transformers gives its attention layers no exchangeable function; "
            "Llama, Qwen2, Qwen3, Mistral and most decoder-only models of recent years have one"
        )
    unknown = set(getattr(text, "layer_types", None) or ()) - _LAYERS_WITH_KV
    if unknown:
        raise ConfigurationError(
            f"{name} has layers of type {', '.join(sorted(unknown))}; the engine serves full and sliding attention only"
        )
    for field in _SAME_IN_ALL_LAYERS:
        try:
            getattr(text, field, None)
        except RuntimeError:  # how a config says that its layers have values of their own
            raise ConfigurationError(
                f"the layers of {name} differ in {field}; the engine serves models whose layers agree in it"
            ) from None
    if getattr(text, "kv_lora_rank", None):
        raise ConfigurationError(
            f"{name} has latent attention (kv_lora_rank), whose keys and values differ in size; "
            "the engine's KV pool has one size for both"
        )
    if getattr(text, "max_position_embeddings", None) is None:
        raise ConfigurationError(f"the config of {name} has no max_position_embeddings; the engine needs that limit")
    _require_plain_weights(name, config)


def text_config(config: Any) -> Any:
    """The part of a config that describes the language model: all of it, unless the model sees or hears too."""
    return config.get_text_config(decoder=True)


def _require_plain_weights(name: str, config: Any) -> None:
    quantization = getattr(config, "quantization_config", None)
    if quantization is None:
        return
    described = quantization if isinstance(quantization, dict) else vars(quantization)
    method = getattr(described.get("quant_method"), "value", described.get("quant_method")) or "an unknown method"
    raise ConfigurationError(
        f"this {name} is quantised ({method}); the engine reads float32, bfloat16 and float16 weights only, "
        "so use the model that it was made from"
    )


def _brings_its_own_code(file: Path) -> bool:
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and bool(document.get("auto_map"))
