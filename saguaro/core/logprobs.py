"""Log-probabilities as they are reported: of the target's raw distribution, see `saguaro.types.TokenLogprobs`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from saguaro.core.truncation import topk
from saguaro.types import TokenLogprobs

# What is reported of a token that is impossible, as that of a row without a token is: JSON has no infinity.
LEAST_LOGPROB = -9999.0
_ROWS_AT_ONCE = 64  # the rows of a long prompt would double the memory of the logits


def token_logprobs(
    logits: Tensor,  # [rows, vocab], as the model gave them
    token_ids: Sequence[int],  # one a row
    num_top: int,
) -> tuple[TokenLogprobs, ...]:  # one a row
    """log_softmax at each row's token, at least LEAST_LOGPROB, and at its `num_top` likeliest ones; at all that are
    possible where those are fewer.
    """
    result: list[TokenLogprobs] = []
    for start in range(0, len(token_ids), _ROWS_AT_ONCE):
        chosen = torch.tensor(token_ids[start : start + _ROWS_AT_ONCE], dtype=torch.int64, device=logits.device)
        rows = logits[start : start + len(chosen)].float()
        total = rows.logsumexp(-1, keepdim=True)  # [rows, 1]
        own = (rows.gather(1, chosen.unsqueeze(1)) - total).squeeze(1).clamp_(min=LEAST_LOGPROB).tolist()
        if num_top == 0:
            result += [TokenLogprobs(logprob) for logprob in own]
            continue
        values, best = topk(rows, num_top)
        tops = zip(best.tolist(), (values - total).tolist(), strict=True)
        result += [
            TokenLogprobs(logprob, tuple(top for top in zip(ids, logprobs, strict=True) if top[1] > LEAST_LOGPROB))
            for logprob, (ids, logprobs) in zip(own, tops, strict=True)
        ]
    return tuple(result)
