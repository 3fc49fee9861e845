"""What a sequence's own tokens do to its next logits: bias, penalties, tokens banned for now, tokens a grammar allows.

Law and order are transformers': logit_bias is added (its SequenceBias for single tokens), then the repetition penalty
over prompt and output (the rule of CTRL, Keskar et al. 1909.05858, section 4.1), then the ban of end tokens before
min_tokens, then what is allowed. Presence and frequency penalties, which transformers does not have, are OpenAI's and
vLLM's: over the output alone, subtracted after the repetition penalty.

A run of tokens is the primitive. The rows of one forward stand on one history, the committed tokens, and each on a few
tokens more: row i of a verification on the first i draft tokens, the row of a tree's branch on the tokens that lead to
it. The history is counted once, as it grows; a step touches each distinct token of it once a row and the few others one
by one. A logit is changed by the same arithmetic in whatever row of whatever batch it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from saguaro.types import SamplingParams, TokenIds


class TokenCounts:
    """How often each distinct token of one sequence occurred in the output; grows in place with the sequence."""

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self._token_ids = np.empty(64, dtype=np.int64)
        self._counts = np.zeros(64, dtype=np.float32)

    def add(self, token_id: int, times: int) -> None:
        """Count `times` more occurrences; 0 makes the token known, as those of the prompt are."""
        index = self._index.setdefault(token_id, len(self._index))
        if index == len(self._token_ids):
            self._token_ids = np.concatenate((self._token_ids, np.empty_like(self._token_ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._token_ids[index] = token_id
        self._counts[index] += times

    def of(self, token_id: int) -> int:
        """Occurrences of one token."""
        index = self._index.get(token_id)
        return 0 if index is None else int(self._counts[index])

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:  # [distinct] int64 and [distinct] float32
        """The distinct tokens and their occurrences; on a CPU views, until the next `add`."""
        size = len(self._index)
        return torch.from_numpy(self._token_ids[:size]).to(device), torch.from_numpy(self._counts[:size]).to(device)


class SequenceRules:
    """One sequence's rules and what it has said so far. `of` a sequence without rules is None."""

    def __init__(self, sampling: SamplingParams, prompt: Sequence[int]) -> None:
        """The output is empty."""
        self._repetition = sampling.repetition_penalty
        self._presence = sampling.presence_penalty
        self._frequency = sampling.frequency_penalty
        self._min_tokens = sampling.min_tokens
        self._banned = torch.tensor(sampling.stop_token_ids, dtype=torch.int64)
        self._biased = torch.tensor([token for token, _ in sampling.logit_bias], dtype=torch.int64)
        self._bias = torch.tensor([bias for _, bias in sampling.logit_bias], dtype=torch.float32)
        self._num_output = 0
        self._counts = TokenCounts()
        self._has_penalties = _has_penalties(sampling)
        if self._repetition != 1:  # the only one that the prompt's tokens count for
            for token in dict.fromkeys(prompt):
                self._counts.add(token, 0)

    @classmethod
    def of(cls, sampling: SamplingParams, tokens: Sequence[int], num_prompt: int) -> SequenceRules | None:
        """The rules of a sequence, `num_prompt` of whose tokens are prompt; None where its logits stay as they are."""
        bans = sampling.min_tokens > 0 and bool(sampling.stop_token_ids)
        if not (_has_penalties(sampling) or sampling.logit_bias or bans):
            return None
        rules = cls(sampling, tokens[:num_prompt])
        rules.extend(tokens[num_prompt:])
        return rules

    def extend(self, tokens: Sequence[int]) -> None:
        """Tokens were committed to the output."""
        self._num_output += len(tokens)
        if self._has_penalties:
            for token in tokens:
                self._counts.add(token, 1)

    @property
    def is_banning(self) -> bool:
        """Whether end tokens are impossible yet."""
        return self._num_output < self._min_tokens

    def apply_(
        self,
        logits: Tensor,  # [rows, vocab] float32, changed in place
        following: Sequence[TokenIds],  # one a row: the tokens after the committed ones that the row stands on
    ) -> None:
        """Change the rows by the rules."""
        device = logits.device
        if len(self._biased):
            logits[:, self._biased.to(device)] += self._bias.to(device)
        if self._has_penalties:
            self._penalise_(logits, following)
        if self.is_banning:
            banning = [row for row, run in enumerate(following) if self._num_output + len(run) < self._min_tokens]
            rows = torch.tensor(banning, dtype=torch.int64, device=device)
            logits[rows.unsqueeze(1), self._banned.to(device)] = -torch.inf

    def _penalise_(self, logits: Tensor, following: Sequence[TokenIds]) -> None:
        device = logits.device
        cells = [(row, token, times) for row, run in enumerate(following) for token, times in Counter(run).items()]
        rows = torch.tensor([row for row, _, _ in cells], dtype=torch.int64, device=device)
        columns = torch.tensor([token for _, token, _ in cells], dtype=torch.int64, device=device)
        counts = [self._counts.of(token) + times for _, token, times in cells]
        # Tokens of the run are penalised from what they were before the history's were.
        in_run = self._penalised(logits[rows, columns], torch.tensor(counts, dtype=torch.float32, device=device))
        token_ids, occurrences = self._counts.tensors(device)
        logits.index_copy_(1, token_ids, self._penalised(logits.index_select(1, token_ids), occurrences))
        logits[rows, columns] = in_run

    def _penalised(self, logits: Tensor, counts: Tensor) -> Tensor:
        """Logits of tokens that occurred, `counts` times in the output."""
        if self._repetition != 1:
            logits = torch.where(logits < 0, logits * self._repetition, logits / self._repetition)
        return logits - self._frequency * counts - self._presence * (counts > 0)


def _has_penalties(sampling: SamplingParams) -> bool:
    return (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) != (1, 0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class RuledRows:
    """Consecutive rows of a batch, all of one sequence, whose logits are not the model's alone."""

    rows: slice
    rules: SequenceRules
    following: Sequence[TokenIds]  # one a row, see `SequenceRules.apply_`


class AllowedTokens(Protocol):
    """What the grammars of a batch's sequences leave to choose from: at least one token a row."""

    def apply(self, logits: Tensor) -> Tensor:  # [rows, vocab] -> [rows, vocab]
        """New logits, -inf on what is not allowed."""


def ruled_rows(
    sequences: Iterable[tuple[SequenceRules | None, int, Callable[[], Sequence[TokenIds]]]],
) -> list[RuledRows]:
    """Of sequences whose rows follow each other, each with its number of rows, those that have rules.

    What the rows stand on (see `SequenceRules.apply_`) is only asked for where it matters.
    """
    ruled, start = [], 0
    for rules, num_rows, following in sequences:
        if rules is not None and num_rows:
            ruled.append(RuledRows(slice(start, start + num_rows), rules, following()))
        start += num_rows
    return ruled


def apply_rules(
    logits: Tensor,  # [rows, vocab]
    ruled: Sequence[RuledRows],
    allowed: AllowedTokens | None = None,
) -> Tensor:  # [rows, vocab] float32
    """The batch's logits by the rules of its sequences: `logits` itself, not copied, where none has any.

    Where all that a grammar allows is banned for now, the grammar wins: such an answer ends before its min_tokens.
    """
    processed = logits
    if ruled:
        processed = logits.float().clone()
        for part in ruled:
            part.rules.apply_(processed[part.rows], part.following)
    if allowed is None:
        return processed
    masked = allowed.apply(processed)
    if any(part.rules.is_banning for part in ruled):
        nothing_left = masked.amax(-1, keepdim=True) == -torch.inf
        masked = torch.where(nothing_left, allowed.apply(logits.float()), masked)
    return masked
