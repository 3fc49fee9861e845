"""A loaded model made fast for the CPU: fused steps, and linear layers of the kind that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from saguaro.config.services import Linear
from saguaro.engine.fusion import fuse
from saguaro.engine.int8_linear import Int8Linear
from saguaro.engine.packed_linear import HalfLinear, PackedLinear, pack
from saguaro.errors import ConfigurationError

Role = Literal["target", "draft"]


def make_fast(model: PreTrainedModel, linear: Linear, role: Role) -> None:
    """Replaces modules of `model` in place; "auto" is the fastest that the role allows, "stock" changes nothing.

    Raises ConfigurationError for int8 in a target, and for packed or int8 where the model is not float32 on a CPU.
    """
    if linear == "int8" and role == "target":
        raise ConfigurationError(
            "linear int8 is for drafts: the target stays in its own precision, since its tokens are the answer"
        )
    fits = model.device.type == "cpu" and model.dtype == torch.float32
    if linear in ("packed", "int8") and not fits:
        raise ConfigurationError(
            f"linear {linear} needs a float32 model on a CPU, this one is {str(model.dtype).removeprefix('torch.')} on "
            f"{model.device.type}; use auto or stock"
        )
    if linear == "stock" or not fits:
        return
    fuse(model)
    _replace_linears(model, Int8Linear if linear == "int8" or (linear == "auto" and role == "draft") else pack)


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all weights, packed ones included, each counted once."""
    tensors = {tensor.data_ptr(): tensor.nbytes for tensor in model.parameters()}
    packed = [m.num_weight_bytes for m in model.modules() if isinstance(m, PackedLinear | HalfLinear | Int8Linear)]
    return sum(tensors.values()) + sum(packed)


def _replace_linears(model: nn.Module, make: Callable[[Tensor, Tensor | None], nn.Module]) -> None:
    """One after another, so that no more than one layer exists twice. A tied embedding keeps the original."""
    # A list of all modules would hold the replaced ones, and their weights, until the end.
    for parent in [module for module in model.modules() if not isinstance(module, nn.Linear)]:
        for name in [name for name, child in parent.named_children() if type(child) is nn.Linear]:
            linear = parent.get_submodule(name)
            assert isinstance(linear, nn.Linear)
            setattr(parent, name, make(linear.weight.data, None if linear.bias is None else linear.bias.data))
