"""One answer as a small table, or as one JSON object."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from saguaro.client import Answer
from saguaro.types import TokenLogprobs


def answer_table(answer: Answer) -> Table:
    """What a reader wants to know about the speed of an answer."""
    speculation = answer.speculation
    length = answer.mean_acceptance_length
    table = Table(show_header=False, title=f"{answer.model}", title_justify="left")
    rows = {
        "tokens": f"{answer.num_generated_tokens} ({answer.finish_reason.name.lower()})",
        "tok/s": f"{answer.tokens_per_second:.1f}",
        "TTFT": f"{answer.ttft_seconds * 1000:.0f} ms",
        "rounds": str(speculation.num_rounds),
        "mean acceptance length": "-" if length is None else f"{length:.2f} tokens a round",
        "hit / miss / late": f"{speculation.cache_hits} / {speculation.cache_misses} / {speculation.cache_late}",
        "seed": str(answer.seed),
        "acceptance": answer.acceptance_mode.name.lower(),
        "speculating": "yes" if speculation.speculating else f"no: {speculation.reason}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def answer_json(answer: Answer, *, with_rounds: bool) -> dict[str, Any]:
    """The same and more, for programs. `reason` and `mean_acceptance_length` are null where there is none.

    Log-probabilities, of the prompt from its second token on, and rounds are there where they were asked for.
    """
    speculation = answer.speculation
    document: dict[str, Any] = {
        "text": answer.text,
        "token_ids": list(answer.token_ids),
        "num_tokens": answer.num_generated_tokens,
        "tokens_per_second": answer.tokens_per_second,
        "ttft_seconds": answer.ttft_seconds,
        "num_rounds": speculation.num_rounds,
        "mean_acceptance_length": answer.mean_acceptance_length,
        "cache_hits": speculation.cache_hits,
        "cache_misses": speculation.cache_misses,
        "cache_late": speculation.cache_late,
        "seed": answer.seed,
        "acceptance_mode": answer.acceptance_mode.name.lower(),
        "speculating": speculation.speculating,
        "reason": None if speculation.speculating else speculation.reason,
        "prompt_token_ids": list(answer.prompt_token_ids),
        "num_cached_prompt_tokens": answer.num_cached_prompt_tokens,
        "finish_reason": answer.finish_reason.name.lower(),
        "model": answer.model,
    }
    if answer.logprobs:
        document["logprobs"] = [_logprobs_json(item) for item in answer.logprobs]
    if answer.prompt_logprobs:
        document["prompt_logprobs"] = [_logprobs_json(item) for item in answer.prompt_logprobs]
    if with_rounds:
        document["rounds"] = [
            {
                "round": item.round,
                "num_draft_tokens": item.num_draft_tokens,
                "num_accepted_tokens": item.num_accepted_tokens,
                "lookup": item.lookup.name.lower(),
                "wait_ns": item.wait_ns,
                "verify_ns": item.verify_ns,
                "accept_ns": item.accept_ns,
                "drafting_ns": item.drafting_ns,
            }
            for item in speculation.rounds
        ]
    return document


def _logprobs_json(item: TokenLogprobs) -> dict[str, Any]:
    return {"logprob": item.logprob, "top": [{"token_id": token, "logprob": logprob} for token, logprob in item.top]}
