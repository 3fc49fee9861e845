"""Fewer, larger steps in a decoder layer: one product for q, k and v, one for gate and up, one rotation for q and k.

The classes here stand in for those of transformers' Llama, Mistral, Qwen2 and Qwen3 with the same inputs, outputs and
attention function; models of other families stay as they are. Rotary pairs are laid side by side (the rows of the q and
k projections are reordered), so that the rotation is one complex product. Scores do not change: both sides of each dot
product are reordered alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

_FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")


def fuse(model: PreTrainedModel) -> None:
    """Replaces, in place, the norms, attention and MLP modules of a float32 model whose family is known; else nothing.

    Weights are moved, not copied: besides the model there is never more than one layer's projections.
    """
    body: Any = getattr(model, "model", None)
    if type(body).__name__ not in {f"{family}Model" for family in _FAMILIES} or not _fits(body):
        return
    for layer in body.layers:
        layer.self_attn = FusedAttention(layer.self_attn)
        layer.mlp = FusedMLP(layer.mlp)
        layer.input_layernorm = FusedRMSNorm(layer.input_layernorm)
        layer.post_attention_layernorm = FusedRMSNorm(layer.post_attention_layernorm)
    body.norm = FusedRMSNorm(body.norm)
    body.rotary_emb = ComplexRotation(body.rotary_emb)


def _fits(body: Any) -> bool:
    """Whether whole heads are rotated, MLPs are gated by SiLU, and complex numbers of the weights' type exist."""
    attention, mlp = body.layers[0].self_attn, body.layers[0].mlp
    return (
        attention.q_proj.weight.dtype == torch.float32
        and body.rotary_emb.inv_freq.numel() * 2 == attention.head_dim
        and body.config.hidden_act == "silu"
        and type(mlp).__name__.removesuffix("MLP") in _FAMILIES
    )


class ComplexRotation(nn.Module):
    """The rotary embedding as complex numbers cos + i sin, made once a forward."""

    def __init__(self, rotary: Any) -> None:
        super().__init__()
        self._rotary = rotary

    def forward(self, hidden: Tensor, position_ids: Tensor) -> Tensor:
        """complex64 [1, T, 1, head_dim / 2] for `position_ids` [1, T]."""
        cos, sin = self._rotary(hidden, position_ids=position_ids)  # each [1, T, head_dim], two equal halves
        half = cos.shape[-1] // 2
        return torch.complex(cos[..., :half], sin[..., :half]).unsqueeze(-2)


class FusedAttention(nn.Module):
    """Attention with one projection for q, k and v."""

    def __init__(self, attention: Any) -> None:
        """Takes the weights of `attention`, a LlamaAttention or its like."""
        super().__init__()
        # Attention functions read these names.
        self.config = attention.config
        self.layer_idx: int = attention.layer_idx
        self.head_dim: int = attention.head_dim
        self.num_key_value_groups: int = attention.num_key_value_groups
        self.scaling: float = attention.scaling
        self._own_function: Callable[..., Any] = sys.modules[type(attention).__module__].eager_attention_forward
        self._num_heads = attention.q_proj.out_features // self.head_dim
        self._num_kv_heads = attention.k_proj.out_features // self.head_dim
        for projection in (attention.q_proj, attention.k_proj):
            projection.weight.data = self._paired(projection.weight.data)
            if projection.bias is not None:
                projection.bias.data = self._paired(projection.bias.data)
        self.qkv_proj = _stacked(attention.q_proj, attention.k_proj, attention.v_proj)
        self.o_proj = attention.o_proj
        self._norm_epsilon: float | None = None
        if hasattr(attention, "q_norm"):  # Qwen3 norms each head of q and k before the rotation
            self._norm_epsilon = attention.q_norm.variance_epsilon
            q_gain, k_gain = (self._paired(norm.weight.data) for norm in (attention.q_norm, attention.k_norm))
            gains = torch.cat([q_gain.expand(self._num_heads, -1), k_gain.expand(self._num_kv_heads, -1)])
            self.head_gains = nn.Parameter(gains, requires_grad=False)  # [H + Hkv, head_dim]

    def _paired(self, rows: Tensor) -> Tensor:
        """Rows of each head in the order 0, D/2, 1, D/2 + 1, ...: what is rotated together lies together."""
        pairs = rows.reshape(-1, 2, self.head_dim // 2, *rows.shape[1:])
        return pairs.transpose(1, 2).reshape(rows.shape)

    def forward(
        self,
        hidden_states: Tensor,  # [B, T, hidden]
        position_embeddings: Tensor,  # complex [1, T, 1, head_dim / 2]
        attention_mask: Tensor | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """[B, T, hidden], and attention weights where the attention function gives them."""
        num_rotated = self._num_heads + self._num_kv_heads
        shape = hidden_states.shape[:-1]
        heads: Tensor = self.qkv_proj(hidden_states).view(*shape, -1, self.head_dim)  # [B, T, H + 2 Hkv, D]
        rotated = heads[..., :num_rotated, :]
        if self._norm_epsilon is not None:
            rotated = nn.functional.rms_norm(rotated, (self.head_dim,), None, self._norm_epsilon) * self.head_gains
        pairs = torch.view_as_complex(rotated.view(*rotated.shape[:-1], -1, 2))
        rotated = torch.view_as_real(pairs * position_embeddings).flatten(-2)
        function = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, self._own_function)
        output, weights = function(
            self,
            rotated[..., : self._num_heads, :].transpose(1, 2),
            rotated[..., self._num_heads :, :].transpose(1, 2),
            heads[..., num_rotated:, :].transpose(1, 2),
            attention_mask,
            dropout=0.0,
            scaling=self.scaling,
            **options,
        )
        return self.o_proj(output.flatten(-2)), weights


class FusedRMSNorm(nn.Module):
    """x / sqrt(mean(x**2) + epsilon) * gain, one pass over x for the mean; torch's own makes four on a CPU."""

    def __init__(self, norm: Any) -> None:
        """Takes the gain of `norm`, a LlamaRMSNorm or its like."""
        super().__init__()
        self.weight = norm.weight
        self._epsilon = torch.tensor(norm.variance_epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """[..., hidden] to [..., hidden]."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        mean_square = torch.addcmul(self._epsilon, length, length, value=1 / x.shape[-1])
        return (x * mean_square.rsqrt_()).mul_(self.weight)


class FusedMLP(nn.Module):
    """down(silu(gate(x)) * up(x)) with one projection for gate and up."""

    def __init__(self, mlp: Any) -> None:
        """Takes the weights of `mlp`, a LlamaMLP or its like."""
        super().__init__()
        self.gate_up_proj = _stacked(mlp.gate_proj, mlp.up_proj)
        self.down_proj = mlp.down_proj

    def forward(self, x: Tensor) -> Tensor:
        """[..., hidden] to [..., hidden]."""
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        output: Tensor = self.down_proj(nn.functional.silu(gate).mul_(up))
        return output


def _stacked(*linears: nn.Linear) -> nn.Linear:
    """One layer whose output is the outputs of `linears`, one after another; their weights are given up."""
    weight = torch.cat([linear.weight.data for linear in linears])
    stacked = nn.Linear(weight.shape[1], weight.shape[0], bias=linears[0].bias is not None, device="meta")
    stacked.weight = nn.Parameter(weight, requires_grad=False)
    if linears[0].bias is not None:
        stacked.bias = nn.Parameter(torch.cat([linear.bias.data for linear in linears]), requires_grad=False)
    return stacked
