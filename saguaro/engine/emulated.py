"""A model without weights, for machines without accelerators: exact outputs, known acceptance, any speed.

Everything around it is the real thing: services, scheduler, blocks, caches, policy. See `emulated_memory` for what
stands for keys and values, `emulated_law` for what the models say, `emulated_pace` for how long they take.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from saguaro.emulation.profile import Profile, Role, load_profile
from saguaro.emulation.tokenizer import EOS_ID, tokenizer_folder
from saguaro.engine.block_manager import BlockManager, BlockTable, SlotIds
from saguaro.engine.emulated_law import FLOOR_LOGIT, PairLaw
from saguaro.engine.emulated_memory import PrefixMemory
from saguaro.engine.emulated_pace import Pace
from saguaro.engine.fingerprint import tokenizer_identity
from saguaro.engine.model_runner import Logits
from saguaro.engine.ragged_batch import Chunk
from saguaro.types import ModelIdentity

_WARM_UP_TOKENS = 32


@dataclass(frozen=True, slots=True)
class EmulatedModel:
    """What is to be emulated, and what others must know of it: the counterpart of `loading.LoadedModel`."""

    profile: Profile
    identity: ModelIdentity
    eos_token_ids: tuple[int, ...]


def load_emulated(spec: str) -> EmulatedModel:
    """The pair that `spec` names: a profile's TOML file or a shipped one. Writes its tokenizer if that is missing.

    Raises ConfigurationError for a profile that is not there or does not fit.
    """
    profile = load_profile(spec)
    tokenizer = tokenizer_identity(tokenizer_folder(profile.vocabulary))
    identity = ModelIdentity(
        name=f"emulated-{profile.name}",
        tokenizer_fingerprint=tokenizer.fingerprint,
        usable_vocabulary_tokens=tokenizer.usable_vocabulary_tokens,
        context_limit_tokens=profile.context_limit,
        dtype="float32",
        model_fingerprint=hashlib.sha256(repr(profile).encode()).hexdigest(),
    )
    return EmulatedModel(profile, identity, (EOS_ID,))


class EmulatedRunner:
    """One of a profile's two models, with the interface of `runner.Runner`."""

    def __init__(self, profile: Profile, role: Role, *, num_blocks: int, block_size: int = 16) -> None:
        """The pool holds `num_blocks * block_size` tokens."""
        self.block_manager = BlockManager(num_blocks, block_size)
        self._profile = profile
        self._role = role
        self._memory = PrefixMemory(num_blocks * block_size, profile.context_limit)
        self._law = PairLaw(profile)
        self._pace = Pace(profile.forward_time(role), profile.faults_of(role))
        self._rows = _blank_rows(0, profile.vocabulary)
        self._written: SlotIds = np.empty(0, dtype=np.int64)  # indices into the rows, flat, that are not blank

    @property
    def context_limit(self) -> int:
        """Longest sequence that the profile allows, tokens."""
        return self._profile.context_limit

    @property
    def vocab_size(self) -> int:
        """Columns of the logits."""
        return self._profile.vocabulary

    @property
    def mask_cell_bytes(self) -> int:
        """A tree's mask, and a copy of it."""
        return 2

    @property
    def device(self) -> torch.device:
        """The CPU, whatever is emulated."""
        return torch.device("cpu")

    def forward(self, chunks: Sequence[Chunk]) -> Logits:
        """Runs all chunks in one pass, as long as the profile says; see `runner.Runner`.

        The logits [R, vocab] are float32 in a buffer that the next forward uses again: read only, until then. Raises
        ValueError for a position at or beyond the context limit.
        """
        started_ns = time.monotonic_ns()
        self._pace.launch()
        logits = self._compute(chunks)
        self._pace.finish(started_ns, sum(len(chunk.token_ids) for chunk in chunks))
        return logits

    def copy_kv(self, sources: SlotIds, targets: SlotIds) -> None:
        """See `runner.Runner`."""
        self._memory.copy(sources, targets)

    def warm_up(self) -> None:
        """A few tokens, prefill and decode, in no time and uncounted."""
        num_tokens = min(_WARM_UP_TOKENS, self.context_limit, self.block_manager.num_blocks)
        with BlockTable(self.block_manager) as table:
            table.reserve(num_tokens)
            self._compute([Chunk.causal(range(num_tokens), 0, table, num_logits=num_tokens)])

    def _compute(self, chunks: Sequence[Chunk]) -> Logits:
        hashes = self._memory.write(chunks)
        ends = list(itertools.accumulate(len(chunk.token_ids) for chunk in chunks))
        row_ends = list(itertools.accumulate(chunk.num_logits for chunk in chunks))
        wanted = [hashes[end - chunk.num_logits : end] for end, chunk in zip(ends, chunks, strict=True)]
        offsets = tuple(slice(end - chunk.num_logits, end) for end, chunk in zip(row_ends, chunks, strict=True))
        token_ids, values = self._law.logits(np.concatenate(wanted), self._role)
        return Logits(self._fill(token_ids, values), offsets)

    def _fill(self, token_ids: SlotIds, values: npt.NDArray[np.float32]) -> torch.Tensor:  # [R, vocab]
        """The floor everywhere but at the candidates. Blanking what was written last is cheaper than fresh rows."""
        num_rows, vocabulary = len(token_ids), self.vocab_size
        self._rows.reshape(-1)[self._written] = FLOOR_LOGIT
        if num_rows > len(self._rows):
            self._rows = _blank_rows(num_rows, vocabulary)
        self._written = (token_ids + vocabulary * np.arange(num_rows)[:, None]).reshape(-1)
        self._rows.reshape(-1)[self._written] = values.reshape(-1)
        return torch.from_numpy(self._rows[:num_rows])


def _blank_rows(num_rows: int, vocabulary: int) -> npt.NDArray[np.float32]:
    return np.full((num_rows, vocabulary), FLOOR_LOGIT, dtype=np.float32)
