"""Proof at start that a model means the same on paged attention as on transformers' own.

There are models whose layers keep, share or mask state in ways that their config does not tell. So a short text goes
through the pool as serving would take it there (a prompt, one token, a verification of several, a tree of branches),
and every row of logits is compared with the model's own attention over the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from saguaro.engine import paged_attention
from saguaro.engine.block_manager import BlockManager, BlockTable
from saguaro.engine.families import text_config
from saguaro.engine.int8_linear import Int8Linear
from saguaro.engine.paged_attention import AttentionPlan
from saguaro.engine.ragged_batch import Chunk
from saguaro.engine.reduced_head import OUTSIDE
from saguaro.errors import ConfigurationError

Forward = Callable[[list[Chunk]], Tensor]  # [rows, tokens]: logits that the chunks want, of ids that stand for a token

_CHECKED_NAME = "saguaro_paged_checked"
_PREFILL, _VERIFY = 20, 5  # tokens; one decoded alone comes between
_FORKS = (9, 2, 0)  # how many of the last tokens each branch of the tree does without
_DEPTH = 2  # tokens of a branch
# Relative differences of a row of logits. Rounding gave 3e-6 in float32, 5e-3 in float16 and 4e-2 in bfloat16 with a
# trained model of 30 layers, and twice that where it moves tokens to other experts; wrong attention gives from 1e-2 (of
# many keys a few are wrong) to 1. So 16 bits cannot tell all that is wrong, but the same model in float32 does. With
# 8-bit activations a last bit moves values by a whole step of their scale: 0.2 and more; they are for drafts, whose
# mistakes no answer shows.
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.25}
_TOLERANCE_INT8 = 0.75


def prove(model: Any, forward: Forward, blocks: BlockManager, *, num_tokens: int) -> None:
    """Runs the text, of at most `num_tokens`; leaves all blocks free and `ATTENTION_NAME` in place.

    Raises ConfigurationError, with the family's name and the reason, if the model fails, its logits are not finite, or
    they are not those of its own attention.
    """
    name = type(model).__name__
    probe = _Probe(_tokens(model, num_tokens))
    with _failures_named(name), BlockTable(blocks) as table, _checked_attention(model, name):
        paged = list(probe.paged_rows(forward, table))
    if not all(bool(torch.isfinite(rows).all()) for rows in paged):
        raise ConfigurationError("a test forward gave logits that are not finite; are the weights damaged?")
    with _failures_named(name), _own_attention(model):
        own = probe.own_rows(model)
    is_int8 = any(isinstance(module, Int8Linear) for module in model.modules())
    tolerance = _TOLERANCE_INT8 if is_int8 else _TOLERANCE.get(next(model.parameters()).dtype, 1e-3)
    difference = max(map(_difference, paged, own))
    if not difference <= tolerance:
        raise ConfigurationError(
            f"{name} does not run on paged attention: its logits differ by {difference:.1%} from those of its own "
            f"attention, where at most {tolerance:.1%} is rounding"
        )


class _Probe:
    """The text: a prompt, a token, some to verify, and behind them branches that fork from the text's end."""

    def __init__(self, token_ids: list[int]) -> None:
        """`token_ids`: of all; the branches are left out where there are too few."""
        num_branched = len(_FORKS) * _DEPTH
        has_branches = len(token_ids) > num_branched + max(_FORKS)
        self._trunk = token_ids[:-num_branched] if has_branches else token_ids
        tail = token_ids[-num_branched:] if has_branches else []
        self._branches = [tail[start : start + _DEPTH] for start in range(0, len(tail), _DEPTH)]

    def paged_rows(self, forward: Forward, table: BlockTable) -> Iterator[Tensor]:
        """Logits [rows, vocab] of each piece of the trunk, then of each step of all branches side by side."""
        start = 0
        for end in self._piece_ends():
            table.reserve(end)
            yield forward([Chunk.causal(self._trunk[start:end], start, table, num_logits=end - start)])
            start = end
        for step in range(_DEPTH if self._branches else 0):
            yield forward([self._tree_step(table, step)])

    def own_rows(self, model: Any) -> list[Tensor]:
        """The same rows from one forward without a cache, over the trunk and each branch with what it forks from."""
        num_trunk = len(self._trunk)
        texts = [self._trunk[: num_trunk - fork] + branch for fork, branch in zip(_FORKS, self._branches, strict=False)]
        length = max(map(len, [self._trunk, *texts]))
        # What is put behind a text to fill its row changes nothing before it.
        filled = [text + self._trunk[: length - len(text)] for text in [self._trunk, *texts]]
        ids = torch.tensor(filled, device=next(model.parameters()).device)
        logits = model(ids, use_cache=False).logits.float()  # [1 + branches, length, vocab]
        starts = [0, *self._piece_ends()[:-1]]
        rows = [logits[0, start:end] for start, end in zip(starts, self._piece_ends(), strict=True)]
        for step in range(_DEPTH if texts else 0):
            rows.append(
                torch.stack([logits[row, len(text) - _DEPTH + step] for row, text in enumerate(texts, start=1)])
            )
        return rows

    def _piece_ends(self) -> list[int]:
        """Where prompt, single token and verification end; the prompt leaves a token to decode if it can."""
        num_trunk = len(self._trunk)
        prompt = max(1, min(_PREFILL, num_trunk - 1))
        return sorted({prompt, min(prompt + 1, num_trunk), num_trunk})

    def _tree_step(self, table: BlockTable, step: int) -> Chunk:
        """Token `step` of every branch; their KV lies behind the trunk, step by step."""
        num_trunk, count = len(self._trunk), len(self._branches)
        end = num_trunk + (step + 1) * count
        table.reserve(end)
        visible = np.zeros((count, end), dtype=np.bool_)
        for branch, fork in enumerate(_FORKS):
            visible[branch, : num_trunk - fork] = True
            visible[branch, num_trunk + branch :: count] = True
        return Chunk(
            token_ids=[branch[step] for branch in self._branches],
            positions=[num_trunk - fork + step for fork in _FORKS],
            write_slots=table.slots(num_trunk + step * count, end),
            context_slots=table.slots(0, end),
            visible=visible,
            num_logits=count,
        )


def _tokens(model: Any, num_tokens: int) -> list[int]:
    """Ids from all over the vocabulary; not the padding, which some models leave out where no mask is given."""
    config = text_config(model.config)
    vocab = int(config.vocab_size)
    wanted = min(num_tokens, _PREFILL + 1 + _VERIFY + len(_FORKS) * _DEPTH)
    generator = np.random.default_rng(0)
    ids = generator.permutation(vocab)[: wanted + 1] if vocab > wanted else generator.integers(vocab, size=wanted + 1)
    padding = getattr(config, "pad_token_id", None)
    return [token for token in ids.tolist() if token != padding or vocab == 1][:wanted]


def _difference(paged: Tensor, own: Tensor) -> float:
    """Of the median row of [rows, vocab]; what all logits of a row have in common is left out.

    The median, not the worst: where two experts are as good as equal, rounding sends a token to another one.
    """
    own = own[:, : paged.shape[1]]
    known = own[0] > OUTSIDE / 2  # columns without a row in the head would hide every other difference
    paged, own = paged[:, known], own[:, known]
    paged, own = paged - paged.mean(dim=1, keepdim=True), own - own.mean(dim=1, keepdim=True)
    relative = (paged - own).norm(dim=1) / own.norm(dim=1).clamp_min(torch.finfo(torch.float32).tiny)
    return float(relative.median())


@contextmanager
def _own_attention(model: Any) -> Iterator[None]:
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(paged_attention.ATTENTION_NAME)


@dataclass(slots=True)
class _Watch:
    """What the calls of one forward showed so far."""

    name: str
    plan: AttentionPlan | None = None
    layers: set[int] = field(default_factory=set)


_watch: ContextVar[_Watch] = ContextVar("saguaro_proof")


@contextmanager
def _checked_attention(model: Any, name: str) -> Iterator[None]:
    """Meanwhile every call of the attention function is checked for what the engine assumes of it."""
    AttentionInterface.register(_CHECKED_NAME, _checked)
    token = _watch.set(_Watch(name))
    model.set_attn_implementation(_CHECKED_NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(paged_attention.ATTENTION_NAME)
        _watch.reset(token)


def _checked(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Any:
    watch = _watch.get()
    plan: AttentionPlan | None = options.get("saguaro_plan")
    if plan is None:
        raise ConfigurationError(f"{watch.name} does not hand on to its attention what the engine needs there")
    if plan is not watch.plan:
        watch.plan, watch.layers = plan, set()
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int) or layer in watch.layers:
        raise ConfigurationError(
            f"{watch.name} attends more than once in layer {layer}; the engine keeps one set of keys and values a layer"
        )
    watch.layers.add(layer)
    if not getattr(module, "is_causal", True):
        raise ConfigurationError(f"{watch.name} attends to later tokens too; the engine serves causal models only")
    _check_shapes(watch.name, plan, layer, key, value)
    return paged_attention.paged_attention(module, query, key, value, *rest, **options)


def _check_shapes(name: str, plan: AttentionPlan, layer: int, key: Tensor, value: Tensor) -> None:
    pool = plan.pool
    held = (pool.num_kv_heads, pool.layers[0].shape[3])
    if layer >= len(pool.layers):
        raise ConfigurationError(f"{name} has a layer {layer}, its config only {len(pool.layers)} layers")
    for tensor, what in ((key, "keys"), (value, "values")):
        heads, size = tensor.shape[1], tensor.shape[3]
        if (heads, size) != held:
            raise ConfigurationError(
                f"{name} has {what} of {heads} heads of {size} numbers in layer {layer}, the engine's KV pool, "
                f"which follows the config, {held[0]} heads of {held[1]}"
            )


@contextmanager
def _failures_named(name: str) -> Iterator[None]:
    """A model whose code fails here would fail in service; running out of memory is not the model's fault."""
    try:
        yield
    except ConfigurationError as error:
        raise (
            error if name in str(error) else ConfigurationError(f"{name} does not run in the engine: {error}")
        ) from None
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigurationError(f"{name} does not run in the engine: {type(error).__name__}: {reason}") from error
