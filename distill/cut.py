"""The draft as a model: some of the target's layers, its embeddings and head frozen and never stored."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from saguaro.engine.loading import load_model
from saguaro.engine.reduced_head import ReducedHead
from saguaro.errors import ConfigurationError

_FIRST, _LAST = 4, 2  # of the target's layers: what reads tokens and what speaks them; middle layers alone do not learn

_AFTER_THE_HEAD = ("final_logit_softcapping", "logits_scaling", "logit_scale")  # what some families do to logits


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A model whose layers and final norm train; `token_ids` are those of its head, None for all."""

    model: PreTrainedModel
    token_ids: tuple[int, ...] | None

    @property
    def column_of(self) -> Tensor:  # [vocab] int64
        """Each token's column in the logits of `head`, -1 for one without."""
        vocab_size: int = self.model.config.vocab_size
        if self.token_ids is None:
            return torch.arange(vocab_size)
        columns = torch.full((vocab_size,), -1)
        columns[torch.tensor(self.token_ids)] = torch.arange(len(self.token_ids))
        return columns

    @property
    def head(self) -> nn.Linear:
        """From hidden states to the logits of its vocabulary."""
        head = self.model.lm_head
        linear = head.linear if isinstance(head, ReducedHead) else head
        assert isinstance(linear, nn.Linear)
        return linear

    def trained(self) -> dict[str, nn.Parameter]:
        """What trains and is stored, by name."""
        return {name: value for name, value in self.model.named_parameters() if value.requires_grad}


def default_layers(num_layers: int) -> tuple[int, ...]:
    """The first four and the last two, fewer of a target that has not more than these."""
    if num_layers <= _FIRST + _LAST:
        return tuple(range(max(1, num_layers // 2)))
    return (*range(_FIRST), *range(num_layers - _LAST, num_layers))


def most_frequent(counts: Tensor, count: int, always: Sequence[int]) -> tuple[int, ...]:
    """Ids, ascending: `always`, then the most frequent by `counts` [vocab], `count` in all; the lower id on a tie."""
    ranked = counts.clone().double()
    ranked[list(always)] = torch.inf
    order = ranked.argsort(descending=True, stable=True)[:count]
    return tuple(sorted(order.tolist()))


def cut(target: str, layers: Sequence[int] | None, token_ids: Sequence[int] | None) -> Draft:
    """A draft of the target's own layers. Raises ConfigurationError where the target cannot be cut that way."""
    model = load_model(target, dtype="float32", device="cpu").model
    config: Any = model.config
    depth = config.num_hidden_layers
    chosen = default_layers(depth) if layers is None else tuple(layers)
    if not chosen or not all(0 <= layer < depth for layer in chosen) or list(chosen) != sorted(set(chosen)):
        raise ConfigurationError(f"--layers is {chosen}; expected ascending numbers from 0 to {depth - 1}")
    body: Any = getattr(model, "model", None)
    if not all(hasattr(body, part) for part in ("embed_tokens", "layers", "norm")):
        raise ConfigurationError(f"{type(model).__name__} cannot be cut: expected layers between embeddings and a norm")
    body.layers = nn.ModuleList(body.layers[layer] for layer in chosen)
    for place, layer in enumerate(body.layers):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = place
    config.num_hidden_layers = len(chosen)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[layer] for layer in chosen]
    return _prepared(model, token_ids)


def begin_from(draft: str, target: str, token_ids: Sequence[int] | None) -> Draft:
    """A draft that shares the target's embeddings, to be trained on; its own token map if none is given."""
    model = load_model(draft, dtype="float32", device="cpu", embeddings_from=target, role="draft").model
    if not getattr(model.config, "shares_embeddings_with_target", False):
        raise ConfigurationError(
            f"--start {draft} has embeddings of its own; expected a draft that shares the target's"
        )
    own = getattr(model.config, "draft_token_ids", None)
    if own is not None and token_ids is not None:
        raise ConfigurationError(f"--start {draft} has a token map of {len(own)} tokens; leave --draft-vocab out")
    return _prepared(model, own if token_ids is None else token_ids)


def save(draft: Draft, folder: Path, notes: dict[str, Any]) -> None:
    """A model folder that `load_model` reads as a draft: layers in fp16, config; whole or not at all.

    `notes` is what the model card says, kept as JSON beside it.
    """
    config = copy.deepcopy(draft.model.config)
    config.shares_embeddings_with_target = True
    if draft.token_ids is not None:
        config.draft_token_ids = list(draft.token_ids)
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        weights = {name: value.detach().half().contiguous() for name, value in draft.trained().items()}
        save_file(weights, work / "model.safetensors", metadata={"format": "pt"})
        config.architectures = [type(draft.model).__name__]
        config.save_pretrained(work)
        (work / "training.json").write_text(json.dumps(notes, indent=2) + "\n")
        work.chmod(0o755)  # mkdtemp makes it private
        replace_folder(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def replace_folder(work: Path, folder: Path) -> None:
    """`work` takes the place of `folder`; a reader may for a moment find none, never half of one."""
    if folder.exists():
        old = folder.with_name(f".{folder.name}-old")
        shutil.rmtree(old, ignore_errors=True)
        os.rename(folder, old)
        os.rename(work, folder)
        shutil.rmtree(old)
    else:
        os.rename(work, folder)


def _prepared(model: PreTrainedModel, token_ids: Sequence[int] | None) -> Draft:
    for name in _AFTER_THE_HEAD:
        if getattr(model.config, name, None) is not None:
            raise ConfigurationError(
                f"{type(model).__name__} cannot be distilled: its config has {name}; logits must be what its head gives"
            )
    head = model.lm_head
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    if token_ids is not None and not isinstance(head, ReducedHead):
        assert isinstance(head, nn.Linear)
        model.lm_head = ReducedHead(head, token_ids)
    for module in (model.get_input_embeddings(), model.lm_head):
        for parameter in module.parameters():
            parameter.requires_grad_(False)
    return Draft(model, None if token_ids is None else tuple(token_ids))
