"""What the answers of a chat took."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from saguaro.client import Answer


def stats_table(answers: Sequence[Answer]) -> Table:
    """The last answer, and all of them together."""
    table = Table("", "last answer", f"all {len(answers)}", title_justify="left")
    for name, last, whole in zip(_NAMES, _column(answers[-1:]), _column(answers), strict=True):
        table.add_row(name, last, whole)
    return table


_NAMES = ("tokens", "tok/s", "TTFT", "prompt tokens kept warm", "acceptance length", "hit rate", "speculating")


def _column(answers: Sequence[Answer]) -> list[str]:
    reports = [answer.speculation for answer in answers]
    rounds = sum(report.num_rounds for report in reports)
    accepted = sum(report.num_accepted_tokens for report in reports)
    hits = sum(report.cache_hits for report in reports)
    lookups = hits + sum(report.cache_misses + report.cache_late for report in reports)
    prompt = sum(answer.num_prompt_tokens for answer in answers)
    last = reports[-1]
    return [
        str(sum(answer.num_generated_tokens for answer in answers)),
        f"{_speed(answers):.1f}",
        f"{1000 * sum(answer.ttft_seconds for answer in answers) / len(answers):.0f} ms",
        f"{sum(answer.num_cached_prompt_tokens for answer in answers)} of {prompt}",
        f"{(accepted + rounds) / rounds:.2f} tokens a round" if rounds else "-",
        f"{hits / lookups:.0%}" if lookups else "-",
        "yes" if last.speculating else f"no: {last.reason}",
    ]


def _speed(answers: Sequence[Answer]) -> float:
    """Tokens a second while decoding, as `Answer.tokens_per_second` counts them, weighted by tokens."""
    tokens = sum(answer.num_generated_tokens for answer in answers)
    seconds = sum(
        answer.num_generated_tokens / answer.tokens_per_second for answer in answers if answer.tokens_per_second
    )
    return tokens / seconds if seconds else 0.0
