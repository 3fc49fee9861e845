"""One causal language model that serves many sequences: chunks in, logits out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from saguaro.config.services import Numerics
from saguaro.engine import fixed_shape, paged_attention, proof
from saguaro.engine.block_manager import BlockManager, SlotIds
from saguaro.engine.device_time import wait_for
from saguaro.engine.families import require_served, text_config
from saguaro.engine.paged_attention import AttentionPlan, KVPool
from saguaro.engine.ragged_batch import Chunk, RaggedBatch

_ROPE_TYPES_OF_THE_LENGTH = {"dynamic", "longrope"}
_ORIGINAL_LENGTH = "original_max_position_embeddings"


@dataclass(frozen=True, slots=True)
class Logits:
    """The logits of one forward."""

    rows: Tensor  # [R, vocab] float32
    offsets: tuple[slice, ...]  # for each chunk, its rows

    def of(self, chunk: int) -> Tensor:
        """Rows of the chunk with that index, [num_logits, vocab]: one for each of its last num_logits tokens."""
        return self.rows[self.offsets[chunk]]


class ModelRunner:
    """A transformers model on paged memory. Not thread-safe: one thread, the engine's own, calls it."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        num_blocks: int,
        block_size: int = 16,
        device: torch.device | str = "cpu",
        numerics: Numerics = "fast",
        num_tokens: int | None = None,
    ) -> None:
        """Takes `model` over: moves it to `device` and replaces its attention function.

        The pool holds `num_blocks * block_size` tokens. Embeddings may be padded: the logits of ids from `num_tokens`
        on, which the tokenizer does not know, are -inf, so that no law, no log-probability and no argmax has them; None
        where it knows all. Raises ConfigurationError for a model whose attention cannot be replaced, or whose layers
        keep other state than keys and values of one size.
        """
        config: Any = text_config(model.config)
        require_served(type(model), model.config)
        self._device = torch.device(device)
        self._model: Any = model.to(self._device).eval()
        paged_attention.register()
        self._model.set_attn_implementation(paged_attention.ATTENTION_NAME)
        self._num_query_heads: int = config.num_attention_heads
        self._context_limit = context_limit_tokens(config)
        self._is_fixed_shape = numerics == "fixed-shape"
        self._context_multiple = fixed_shape.CONTEXT_MULTIPLE if self._is_fixed_shape else 1
        self._vocab_size: int = config.vocab_size
        self._num_tokens = self._vocab_size if num_tokens is None else min(num_tokens, self._vocab_size)
        self.block_manager = BlockManager(num_blocks, block_size)
        self.kv_pool = KVPool(
            num_layers=config.num_hidden_layers,
            num_slots=num_blocks * block_size,
            num_kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            dtype=next(model.parameters()).dtype,
            device=self._device,
        )

    @property
    def context_limit(self) -> int:
        """Longest sequence that the model serves, see `context_limit_tokens`."""
        return self._context_limit

    @property
    def vocab_size(self) -> int:
        """Columns of the logits: the embeddings' size, perhaps padded beyond the tokenizer's."""
        return self._vocab_size

    @property
    def mask_cell_bytes(self) -> int:
        """The mask as it is made; for each query head of a KV head, that and its inverse again, and the bias."""
        heads_per_kv_head = self._num_query_heads // self.kv_pool.num_kv_heads
        return 1 + heads_per_kv_head * (2 + self.kv_pool.layers[0].element_size())

    @property
    def device(self) -> torch.device:
        return self._device

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> Logits:
        """Runs all chunks in one pass, writes their KV, and returns the logits that they want.

        Returns when the device is done: so the time of a call is the time of the forward, and a fault is raised here.
        Raises ValueError for a position at or beyond the context limit.
        """
        last_position = max(int(np.max(chunk.positions)) for chunk in chunks)
        if last_position >= self._context_limit:
            raise ValueError(f"position {last_position}: the context limit is {self._context_limit} tokens")
        work = fixed_shape.with_a_second_row(chunks) if self._is_fixed_shape else chunks
        batch = RaggedBatch.build(work, self._device, context_multiple=self._context_multiple)
        plan = AttentionPlan.build(batch, self.kv_pool, self._num_query_heads, row_by_row=self._is_fixed_shape)
        output = self._model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            use_cache=False,
            logits_to_keep=batch.logit_rows,
            saguaro_plan=plan,
        )
        offsets = batch.row_offsets[: len(chunks)]
        rows = output.logits[0, : offsets[-1].stop].float()
        if self._num_tokens < self._vocab_size:
            rows[:, self._num_tokens :] = -torch.inf
        wait_for(self._device)
        return Logits(rows, offsets)

    @torch.inference_mode()
    def copy_kv(self, sources: SlotIds, targets: SlotIds) -> None:
        """See `runner.Runner`."""
        self.kv_pool.copy(sources, targets)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """A short text, as serving would run it: pays for what is lazily set up, and proves the model, see `proof`.

        Raises ConfigurationError for a model that is not the same on paged attention as on its own.
        """
        num_tokens = min(self._context_limit, self.kv_pool.num_slots)
        proof.prove(self._model, self._known_rows, self.block_manager, num_tokens=num_tokens)

    def _known_rows(self, chunks: Sequence[Chunk]) -> Tensor:
        return self.forward(chunks).rows[:, : self._num_tokens]


def context_limit_tokens(config: Any) -> int:
    """Longest sequence for which a model means the same however its forwards are cut and batched.

    That is max_position_embeddings, but at most one sliding window (then the window never masks anything), and at most
    the original length where the rotary frequencies change with the length of the batch (dynamic NTK, LongRoPE): keys
    already in the pool, and other sequences, must not depend on it.
    """
    config = text_config(config)
    limits = [config.max_position_embeddings]
    layer_types = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if window is not None and (layer_types is None or "sliding_attention" in layer_types):
        limits.append(window)
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        original = parameters.get(_ORIGINAL_LENGTH, getattr(config, _ORIGINAL_LENGTH, None))
        if parameters.get("rope_type") in _ROPE_TYPES_OF_THE_LENGTH and original is not None:
            limits.append(original)
    return int(min(limits))
