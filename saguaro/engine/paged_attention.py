"""Attention over the paged KV pool, in the shape in which transformers calls an attention function.

transformers finds it under `ATTENTION_NAME`; the model's forward passes our `AttentionPlan` through to every layer. A
layer writes its new keys and values into the pool and then, group by group, gathers each chunk's context and attends.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from saguaro.engine.block_manager import SlotIds
from saguaro.engine.ragged_batch import AttentionGroup, RaggedBatch
from saguaro.errors import ConfigurationError

ATTENTION_NAME = "saguaro_paged"


class KVPool:
    """Keys and values of every slot, layer by layer.

    Memory is not initialised: on a CPU the system hands it out as slots are first written. A slot that was never
    written may hold NaN, so nothing may gather one, masked or not (0 * NaN is NaN).
    """

    def __init__(
        self,
        num_layers: int,
        num_slots: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        # Keys and values side by side: one gather fetches both.
        self.layers: list[Tensor] = [  # each [num_slots, 2, num_kv_heads, head_dim]
            torch.empty((num_slots, 2, num_kv_heads, head_dim), dtype=dtype, device=device) for _ in range(num_layers)
        ]
        self._gathered = torch.empty((0, 2, num_kv_heads, head_dim), dtype=dtype, device=device)

    @property
    def num_slots(self) -> int:
        return self.layers[0].shape[0]

    @property
    def num_kv_heads(self) -> int:
        return self.layers[0].shape[2]

    def write(self, layer: int, slots: Tensor | slice, keys: Tensor, values: Tensor) -> None:
        """Stores `keys` and `values`, both [T, num_kv_heads, head_dim], into `slots` [T]."""
        if isinstance(slots, slice):
            target = self.layers[layer][slots]
            target[:, 0], target[:, 1] = keys, values
        else:
            self.layers[layer].index_copy_(0, slots, torch.stack((keys, values), dim=1))

    def copy(self, sources: SlotIds, targets: SlotIds) -> None:
        """Copies `sources` [n] to `targets` [n] in every layer; all are read before any is written."""
        source, target = (torch.tensor(slots, device=self.layers[0].device) for slots in (sources, targets))
        for layer in self.layers:
            layer.index_copy_(0, target, layer.index_select(0, source))

    def view(self, layer: int, slots: slice) -> tuple[Tensor, Tensor]:
        """Keys and values of consecutive slots, each [1, num_kv_heads, L, head_dim], without a copy."""
        keys, values = self.layers[layer][None, slots].permute(2, 0, 3, 1, 4).unbind(0)
        return keys, values

    def gather(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of `slots` [S, L], each [S, num_kv_heads, L, head_dim]; valid until the next gather.

        The buffer is reused: a fresh one for each layer costs more in page faults than the copy itself.
        """
        num_sequences, length = slots.shape
        num_rows = num_sequences * length
        if num_rows > len(self._gathered):
            self._gathered = self._gathered.new_empty((num_rows, *self._gathered.shape[1:]))
        source, target = self.layers[layer].flatten(1), self._gathered[:num_rows].flatten(1)
        torch.index_select(source, 0, slots.reshape(-1), out=target)
        both = self._gathered[:num_rows].view(num_sequences, length, *self._gathered.shape[1:])  # [S, L, 2, Hkv, D]
        keys, values = both.permute(2, 0, 3, 1, 4).unbind(0)
        return keys, values


@dataclass(frozen=True, slots=True)
class _GroupPlan:
    query_shape: tuple[int, int]  # S, q
    query_rows: Tensor | None  # [S, q]; None: all rows of the batch, in order
    context_slots: Tensor | slice  # [S, L]
    bias: Tensor | None  # [S, 1, q * G, L] in the queries' type: 0 where seen, -inf where not
    row_bias: Tensor | None  # [S, q, 1, 1, L], in place of `bias` where each query attends by itself


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What every layer of one forward needs, made once."""

    pool: KVPool
    write_slots: Tensor | slice  # [T]
    groups: tuple[_GroupPlan, ...]
    flat_order: Tensor | None  # [T]

    @staticmethod
    def build(batch: RaggedBatch, pool: KVPool, num_query_heads: int, *, row_by_row: bool = False) -> AttentionPlan:
        """The plan of `batch` for a model with `num_query_heads`, a multiple of the pool's KV heads.

        `row_by_row`: each query attends by itself, see `saguaro.engine.fixed_shape`.
        """
        heads_per_kv_head = num_query_heads // pool.num_kv_heads
        dtype = pool.layers[0].dtype
        is_whole = len(batch.groups) == 1 and batch.flat_order is None
        groups = tuple(
            _GroupPlan(
                query_shape=(group.query_rows.shape[0], group.query_rows.shape[1]),
                query_rows=None if is_whole else group.query_rows,
                context_slots=group.context_span or group.context_slots,
                bias=None if row_by_row else _bias(group, heads_per_kv_head, dtype),
                row_bias=_row_bias(group, dtype) if row_by_row else None,
            )
            for group in batch.groups
        )
        return AttentionPlan(pool, batch.write_span or batch.write_slots, groups, batch.flat_order)


def _bias(group: AttentionGroup, heads_per_kv_head: int, dtype: torch.dtype) -> Tensor | None:
    """Made in advance: scaled_dot_product_attention would convert a boolean mask again in every layer."""
    if group.mask is None:
        return None
    return _as_bias(group.mask.repeat_interleave(heads_per_kv_head, dim=2), dtype)


def _row_bias(group: AttentionGroup, dtype: torch.dtype) -> Tensor:
    """There is always one: without a mask the kernel takes another path."""
    num_sequences, num_queries = group.query_rows.shape
    shape = (num_sequences, num_queries, 1, 1, group.context_slots.shape[1])
    if group.mask is None:
        return torch.zeros(shape, dtype=dtype, device=group.context_slots.device)
    return _as_bias(group.mask.view(shape), dtype)


def _as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


def paged_attention(
    module: nn.Module,
    query: Tensor,  # [1, H, T, D], rotated
    key: Tensor,  # [1, Hkv, T, D], rotated
    value: Tensor,  # [1, Hkv, T, D]
    attention_mask: Tensor | None,
    *,
    saguaro_plan: AttentionPlan,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attends every token of the flat batch to its own context; returns ([1, T, H, D], None).

    Dropout is for training and sliding windows never matter within the runner's context limit, so both are ignored.
    Raises ConfigurationError for score terms that it does not know (attention sinks, position biases, masks that layers
    make themselves: who sees whom is the plan's alone).
    """
    if attention_mask is not None:
        raise ConfigurationError("the layers make attention masks of their own, which the engine does not support")
    if s_aux is not None or position_bias is not None:
        raise ConfigurationError(
            "this model adds attention sinks or position biases, which the engine does not support"
        )
    layer = module.layer_idx
    assert isinstance(layer, int)
    plan, pool = saguaro_plan, saguaro_plan.pool
    pool.write(layer, plan.write_slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    queries = query[0].transpose(0, 1)  # [T, H, D]
    attended = [_attend(pool, layer, queries, group, scaling, softcap) for group in plan.groups]
    output = attended[0] if len(attended) == 1 else torch.cat(attended)
    return (output if plan.flat_order is None else output[plan.flat_order])[None], None


def _attend(
    pool: KVPool, layer: int, queries: Tensor, group: _GroupPlan, scaling: float | None, softcap: float | None
) -> Tensor:
    """Outputs [S * q, H, D] of one group.

    The G query heads of one KV head become rows of one attention problem, so keys and values are never repeated.
    """
    slots = group.context_slots
    keys, values = pool.view(layer, slots) if isinstance(slots, slice) else pool.gather(layer, slots)
    num_kv_heads, head_dim = keys.shape[1], keys.shape[3]
    num_sequences, num_queries = group.query_shape
    rows = queries if group.query_rows is None else queries[group.query_rows]
    grouped = rows.reshape(num_sequences, num_queries, num_kv_heads, -1, head_dim)
    if group.row_bias is not None:
        if softcap is not None:
            raise ConfigurationError("numerics fixed-shape has no attention with squashed scores; use numerics fast")
        return _attend_row_by_row(grouped, keys, values, group.row_bias, scaling)
    folded = grouped.transpose(1, 2).reshape(num_sequences, num_kv_heads, -1, head_dim)  # [S, Hkv, q * G, D]
    if softcap is None:
        output = nn.functional.scaled_dot_product_attention(folded, keys, values, attn_mask=group.bias, scale=scaling)
    else:
        output = _softcapped_attention(folded, keys, values, group.bias, scaling or head_dim**-0.5, softcap)
    unfolded = output.view(num_sequences, num_kv_heads, num_queries, -1, head_dim).transpose(1, 2)
    return unfolded.reshape(num_sequences * num_queries, -1, head_dim)


def _attend_row_by_row(
    grouped: Tensor,  # [S, q, Hkv, G, D]
    keys: Tensor,  # [S, Hkv, L, D]
    values: Tensor,  # [S, Hkv, L, D]
    bias: Tensor,  # [S, q, 1, 1, L]
    scaling: float | None,
) -> Tensor:  # [S * q, H, D]
    """Every query an attention problem of G rows; those of one sequence share its keys and values, not copied."""
    num_queries, num_heads_per_kv_head = grouped.shape[1], grouped.shape[3]
    attended = [
        nn.functional.scaled_dot_product_attention(
            queries,
            keys[index].expand(num_queries, -1, -1, -1),
            values[index].expand(num_queries, -1, -1, -1),
            attn_mask=bias[index].expand(-1, -1, num_heads_per_kv_head, -1),
            scale=scaling,
        )
        for index, queries in enumerate(grouped)
    ]
    return torch.cat(attended).flatten(1, 2)


def _softcapped_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scaling: float, softcap: float
) -> Tensor:
    """Scores squashed into (-softcap, softcap) by tanh before the mask (Gemma 2, arXiv 2408.00118)."""
    scores = softcap * torch.tanh(query @ key.transpose(2, 3) * (scaling / softcap))
    if bias is not None:
        scores = scores + bias
    return torch.matmul(scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype), value)


def register() -> None:
    """Makes the function known to transformers as `ATTENTION_NAME`. Harmless when repeated."""
    AttentionInterface.register(ATTENTION_NAME, paged_attention)
