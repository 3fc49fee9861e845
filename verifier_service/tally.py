"""What the decode loop counts for whoever scrapes it: plain numbers, so that counting costs the loop nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from saguaro.types import LookupResult, RoundReport, TokenProvenance, TokenRun


@dataclass(slots=True)
class RoundTally:
    """Sums over all rounds of all sequences, round 0 apart. The engine thread alone writes; anyone may read."""

    num_rounds: int = 0
    num_drafts: int = 0  # rounds that verified a speculation
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_at: Counter[int] = field(default_factory=Counter)  # by place in the speculation, from 0
    lookups: Counter[LookupResult] = field(default_factory=Counter)
    tokens: Counter[TokenProvenance] = field(default_factory=Counter)
    part_ns: Counter[str] = field(default_factory=Counter)  # by part of a round
    num_queued: int = 0
    queued_ns: int = 0

    def count(self, report: RoundReport, run: TokenRun) -> None:
        """A round ended and emitted the run."""
        self.tokens.update(run.provenance)
        self.lookups[report.lookup] += 1
        if report.round == 0:
            return
        self.num_rounds += 1
        self.part_ns["wait"] += report.wait_ns
        self.part_ns["verify"] += report.verify_ns
        self.part_ns["accept"] += report.accept_ns
        if report.num_draft_tokens:
            self.num_drafts += 1
            self.num_draft_tokens += report.num_draft_tokens
            self.num_accepted_tokens += report.num_accepted_tokens
            self.accepted_at.update(range(report.num_accepted_tokens))

    def admitted(self, queued_ns: int) -> None:
        """A request came into the step loop after that time in the queue."""
        self.num_queued += 1
        self.queued_ns += queued_ns
