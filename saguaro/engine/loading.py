"""From the name of a model to its weights and its identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from saguaro import model_paths
from saguaro.config.services import Linear
from saguaro.engine import demo_models, hub
from saguaro.engine.end_tokens import end_token_ids
from saguaro.engine.families import causal_model_class, read_config
from saguaro.engine.fast_model import Role, make_fast
from saguaro.engine.fingerprint import identity_of, model_fingerprint, read_tokenizer
from saguaro.engine.model_runner import context_limit_tokens
from saguaro.engine.reduced_head import ReducedHead
from saguaro.engine.special_ids import check_special_ids
from saguaro.engine.weight_files import index_file, weight_files, weight_map
from saguaro.errors import ConfigurationError
from saguaro.model_paths import refuse_lfs_pointer
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
    config = read_config(folder)
    check_special_ids(folder, config.get_text_config().vocab_size)
    model_class = causal_model_class(config)
    shared_with = None
    if getattr(config, "shares_embeddings_with_target", False):
        if embeddings_from is None:
            raise ConfigurationError(f"{spec} has no embeddings of its own: it can only be the draft of its target")
        shared_with = resolve_folder(embeddings_from, progress)
    progress(f"loading {model_paths.served_name(spec)}", None)
    if shared_with is None:
        weight_files(folder)  # says what is missing, where transformers would not
        model = _load_weights(folder, AutoModelForCausalLM, folder, dtype=_DTYPES[dtype])
    else:
        weights = _with_embeddings_of(shared_with, folder, config)
        # The auto class insists on a folder.
        model = _load_weights(folder, model_class, None, config=config, state_dict=weights, dtype=_DTYPES[dtype])
        if getattr(config, "draft_token_ids", None) is not None:
            model.lm_head = ReducedHead(model.lm_head, config.draft_token_ids)
    has_tokenizer = shared_with is None or (folder / "tokenizer.json").is_file()
    tokenizer_folder = folder if has_tokenizer else shared_with or folder
    tokenizer = read_tokenizer(tokenizer_folder)
    tokens = identity_of(tokenizer)
    identity = ModelIdentity(
        name=model_paths.served_name(spec),
        tokenizer_fingerprint=tokens.fingerprint,
        usable_vocabulary_tokens=min(tokens.usable_vocabulary_tokens, config.get_text_config().vocab_size),
        context_limit_tokens=context_limit_tokens(config),
        dtype=dtype,
        model_fingerprint=model_fingerprint(folder, *(["int8"] if linear == "int8" else [])),
    )
    model = model.to(device).eval()
    make_fast(model, linear, role)
    eos_token_ids = end_token_ids(config, folder, tokenizer_folder, tokenizer)
    return LoadedModel(model, identity, eos_token_ids, folder, tokenizer_folder)


def resolve_folder(spec: str, progress: ReportProgress = lambda label, fraction: None) -> Path:
    """The folder of the model that `spec` names, converted or downloaded first where that is needed.

    Raises ConfigurationError if there is none and none can be had.
    """
    if spec == model_paths.DEMO_TARGET:
        return demo_models.demo_target(progress)
    folder = model_paths.resolve_folder(spec)
    if folder is not None and (model_paths.is_folder(spec) or hub.is_whole(folder)):
        return folder
    if model_paths.is_path(spec):
        raise ConfigurationError(f"no model at {spec}: expected a folder with config.json, tokenizer.json and weights")
    progress(f"downloading {spec}", None)
    return hub.download(spec)


def _load_weights(folder: Path, model_class: Any, source: Path | None, **options: Any) -> PreTrainedModel:
    """transformers' own loader; absent weights are an error here, where it would put random ones."""
    try:
        model, report = model_class.from_pretrained(
            source,
            local_files_only=True,
            output_loading_info=True,
            use_safetensors=True,
            trust_remote_code=False,
            **options,
        )
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # each family's code fails in its own way on a config that it cannot follow
        reason = error if isinstance(error, OSError | ValueError | RuntimeError) else repr(error)
        raise ConfigurationError(f"the model at {folder} cannot be loaded: {reason}") from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise ConfigurationError(f"the model at {folder} lacks {len(missing)} weights: {', '.join(missing[:3])}, ...")
    loaded: PreTrainedModel = model
    return loaded


def _with_embeddings_of(target: Path, folder: Path, config: Any) -> dict[str, Tensor]:
    """The draft's weights with the target's embeddings, and its LM head where that is not tied to them."""
    weights: dict[str, Tensor] = {}
    for file in weight_files(folder):
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
    index = index_file(folder)
    files = weight_files(folder) if index is None else [folder / weight_map(index).get(name, "")]
    for file in files:
        if file.is_file():
            refuse_lfs_pointer(file)
            with safe_open(file, framework="pt") as tensors:
                if name in tensors.keys():  # noqa: SIM118 - it is not a mapping
                    tensor: Tensor = tensors.get_tensor(name)
                    return tensor
    raise ConfigurationError(f"the target at {folder} has no tensor {name} in safetensors form to share with a draft")


def _silence_bars() -> None:
    """Services report progress as lines; transformers' bars between them would be noise."""
    transformers_logging.disable_progress_bar()
