"""How far a generation has come: enough to go on elsewhere, and to report on all of it in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from saguaro.types import (
    FinishReason,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    LookupResult,
    PromptLogprobs,
    Resumption,
    RoundReport,
    SpeculationReport,
    TokenRun,
)


@dataclass(slots=True)
class _Rounds:
    """Counts of rounds, and the rounds themselves where they are wanted."""

    num_rounds: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    lookups: Counter[LookupResult] = field(default_factory=Counter)
    reports: list[RoundReport] = field(default_factory=list)

    def add(self, report: RoundReport, *, keeps_it: bool) -> None:
        self.num_rounds += report.round > 0  # round 0, the prompt's own forward, counts as none
        self.num_draft_tokens += report.num_draft_tokens
        self.num_accepted_tokens += report.num_accepted_tokens
        self.lookups[report.lookup] += 1
        if keeps_it:
            self.reports.append(report)

    def before(self, last: SpeculationReport, since: Sequence[RoundReport] = ()) -> SpeculationReport:
        """These rounds and, after them, those of `last`; `since` are the reports since then."""
        return replace(
            last,
            num_rounds=self.num_rounds + last.num_rounds,
            num_draft_tokens=self.num_draft_tokens + last.num_draft_tokens,
            num_accepted_tokens=self.num_accepted_tokens + last.num_accepted_tokens,
            cache_hits=self.lookups[LookupResult.HIT] + last.cache_hits,
            cache_misses=self.lookups[LookupResult.MISS] + last.cache_misses,
            cache_late=self.lookups[LookupResult.LATE] + last.cache_late,
            # Where a message had no room for them, they are those that came with the runs.
            rounds=(*self.reports, *(last.rounds or since)),
        )


class Progress:
    """What of one generation has come in, from however many verifiers, one after the other."""

    def __init__(self, request: GenerationRequest) -> None:
        self.token_ids: list[int] = []
        self._request = request
        self._num_resumptions = self._num_runs = 0
        self._rounds = _Rounds()  # of every run that came in
        self._lost = _Rounds()  # of those that came from verifiers that were lost

    def take(self, event: GenerationEvent) -> None:
        """One event came in."""
        match event:
            case GenerationStarted():
                # Verifiers may differ in what they do where a request names no mode.
                sampling = replace(self._request.sampling, acceptance=event.acceptance_mode)
                self._request = replace(self._request, sampling=sampling)
            case PromptLogprobs():
                self._request = replace(self._request, prompt_logprobs=False)
            case TokenRun():
                self.token_ids += event.token_ids
                self._num_runs += 1
                if event.report is not None:
                    self._rounds.add(event.report, keeps_it=self._request.include_rounds)
            case GenerationFinished():
                pass

    def resume(self) -> GenerationRequest:
        """The verifier was lost: what the next one is asked.

        Under an id of its own: the lost one may live on behind a broken connection, and be the next one, too.
        """
        self._num_resumptions += 1
        self._lost = deepcopy(self._rounds)
        return replace(
            self._request,
            request_id=f"{self._request.request_id}~{self._num_resumptions}",
            resumption=Resumption(tuple(self.token_ids), self._num_runs),
        )

    def whole(self, finished: GenerationFinished) -> GenerationFinished:
        """The last event, its report over the rounds of every verifier."""
        since = self._rounds.reports[len(self._lost.reports) :]
        return replace(finished, speculation=self._lost.before(finished.speculation, since))

    def stopped(self, reason: str) -> GenerationFinished:
        """The last event of a generation that was told to stop and whose verifier was lost before it said so."""
        return GenerationFinished(
            reason=FinishReason.ABORTED,
            num_prompt_tokens=len(self._request.prompt),
            num_generated_tokens=len(self.token_ids),
            num_cached_prompt_tokens=0,
            speculation=self._rounds.before(SpeculationReport(speculating=False, reason=reason)),
        )
