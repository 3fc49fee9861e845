"""From the name of a model to its weights and its identity."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from saguaro import model_paths
from saguaro.config.services import Linear
from saguaro.engine import demo_models
from saguaro.engine.fast_model import Role, make_fast
from saguaro.engine.fingerprint import model_fingerprint, tokenizer_identity
from saguaro.engine.model_runner import context_limit_tokens
from saguaro.engine.reduced_head import ReducedHead
from saguaro.engine.special_ids import check_special_ids
from saguaro.errors import ConfigurationError
from saguaro.types import ModelIdentity

ReportProgress = Callable[[str, float | None], None]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_EMBEDDINGS = "model.embed_tokens.weight"
_LM_HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready for a ModelRunner, and what others must know of it."""

    model: PreTrainedModel
    identity: ModelIdentity
    eos_token_ids: tuple[int, ...]
    folder: Path
    tokenizer_folder: Path  # the target's, where a draft has no tokenizer of its own


def load_model(
    spec: str,
    *,
    dtype: str,
    device: str,
    embeddings_from: str | None = None,
    linear: Linear = "stock",
    role: Role = "target",
    progress: ReportProgress = lambda label, fraction: None,
) -> LoadedModel:
    """Loads the model that `spec` names: "demo-target", "demo-draft", a folder, or a hub id.

    A draft whose config.json says "shares_embeddings_with_target" has neither embeddings nor LM head of its own: both,
    and the tokenizer if it has none, come from the model named by `embeddings_from`. Its "draft_token_ids", if any, are
    the tokens that its head knows, see `ReducedHead`. `linear` is the kind of its linear layers, see `make_fast`.
    Raises ConfigurationError where there is no such model, or not a usable one, or not one for `linear`.
    """
    if dtype not in _DTYPES:
        raise ConfigurationError(f"dtype {dtype!r} is unknown: expected one of {', '.join(_DTYPES)}")
    _silence_bars()
    folder = resolve_folder(spec, progress)
    if not (folder / "config.json").is_file():
        raise ConfigurationError(f"no model at {folder}: expected config.json, tokenizer.json and safetensors files")
    config = _read_config(folder)
    check_special_ids(folder, config.get_text_config().vocab_size)
    shared_with = None
    if getattr(config, "shares_embeddings_with_target", False):
        if embeddings_from is None:
            raise ConfigurationError(f"{spec} has no embeddings of its own: it can only be the draft of its target")
        shared_with = resolve_folder(embeddings_from, progress)
    progress(f"loading {model_paths.served_name(spec)}", None)
    if shared_with is None:
        model = _load_weights(folder, AutoModelForCausalLM, folder, dtype=_DTYPES[dtype])
    else:
        weights = _with_embeddings_of(shared_with, folder, config)
        model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]  # the auto class insists on a folder
        model = _load_weights(folder, model_class, None, config=config, state_dict=weights, dtype=_DTYPES[dtype])
        if getattr(config, "draft_token_ids", None) is not None:
            model.lm_head = ReducedHead(model.lm_head, config.draft_token_ids)
    has_tokenizer = shared_with is None or (folder / "tokenizer.json").is_file()
    tokenizer_folder = folder if has_tokenizer else shared_with or folder
    tokenizer = tokenizer_identity(tokenizer_folder)
    identity = ModelIdentity(
        name=model_paths.served_name(spec),
        tokenizer_fingerprint=tokenizer.fingerprint,
        usable_vocabulary_tokens=min(tokenizer.usable_vocabulary_tokens, config.get_text_config().vocab_size),
        context_limit_tokens=context_limit_tokens(config),
        dtype=dtype,
        model_fingerprint=model_fingerprint(folder, *(["int8"] if linear == "int8" else [])),
    )
    model = model.to(device).eval()
    make_fast(model, linear, role)
    return LoadedModel(model, identity, _eos_token_ids(model), folder, tokenizer_folder)


def resolve_folder(spec: str, progress: ReportProgress = lambda label, fraction: None) -> Path:
    """The folder of the model that `spec` names, converted or downloaded first where that is needed.

    Raises ConfigurationError if there is none and none can be had.
    """
    if spec == model_paths.DEMO_TARGET:
        return demo_models.demo_target(progress)
    folder = model_paths.resolve_folder(spec)
    if folder is not None:
        return folder
    if model_paths.is_path(spec):
        raise ConfigurationError(f"no model at {spec}: expected a folder with config.json, tokenizer.json and weights")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    progress(f"downloading {spec}", None)
    try:
        return Path(snapshot_download(spec, allow_patterns=["*.json", "*.jinja", "*.safetensors"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigurationError(
            f"no model {spec!r}: expected demo-target, demo-draft, an existing folder, or a model that the hub has "
            f"({type(error).__name__}: {str(error).splitlines()[0]})"
        ) from error


def _read_config(folder: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigurationError(f"{folder / 'config.json'} is not the config of a known model: {error}") from error


def _load_weights(folder: Path, model_class: Any, source: Path | None, **options: Any) -> PreTrainedModel:
    """transformers' own loader; absent weights are an error here, where it would put random ones."""
    try:
        model, report = model_class.from_pretrained(source, local_files_only=True, output_loading_info=True, **options)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ConfigurationError(f"the model at {folder} cannot be loaded: {error}") from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise ConfigurationError(f"the model at {folder} lacks {len(missing)} weights: {', '.join(missing[:3])}, ...")
    loaded: PreTrainedModel = model
    return loaded


def _with_embeddings_of(target: Path, folder: Path, config: Any) -> dict[str, Tensor]:
    """The draft's weights with the target's embeddings, and its LM head where that is not tied to them."""
    weights: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= load_file(file)
    shape = (config.vocab_size, config.hidden_size)
    for name in [_EMBEDDINGS] if config.tie_word_embeddings else [_EMBEDDINGS, _LM_HEAD]:
        weights[name] = _read_tensor(target, name)
        if weights[name].shape != shape:
            raise ConfigurationError(
                f"the draft at {folder} cannot share {name} with {target}: "
                f"it needs {list(shape)}, the target has {list(weights[name].shape)}"
            )
    return weights


def _read_tensor(folder: Path, name: str) -> Tensor:
    """One tensor of a model that may be sharded, without reading the others."""
    index = folder / "model.safetensors.index.json"
    file = folder / (
        json.loads(index.read_text())["weight_map"].get(name, "") if index.is_file() else "model.safetensors"
    )
    if file.is_file():
        with safe_open(file, framework="pt") as tensors:
            if name in tensors.keys():  # noqa: SIM118 - it is not a mapping
                tensor: Tensor = tensors.get_tensor(name)
                return tensor
    raise ConfigurationError(f"the target at {folder} has no tensor {name} in safetensors form to share with a draft")


def _eos_token_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """Ids that end an answer: the generation config's, else the config's; empty if neither names one."""
    for config in (model.generation_config, model.config):
        eos = getattr(config, "eos_token_id", None)
        if eos is not None:
            return tuple(token_id for token_id in ((eos,) if isinstance(eos, int) else eos) if token_id >= 0)
    return ()


def _silence_bars() -> None:
    """Services report progress as lines; transformers' bars between them would be noise."""
    transformers_logging.disable_progress_bar()
