"""Runs a plan: cell by cell, batch by batch, all modes on a batch before the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bench.houses import House
from bench.measured import Arrival, TimedAnswer, Turn
from bench.peer import TransformersPeer
from bench.plan import TRANSFORMERS_ASSISTED, BenchPlan, Cell, batches, rotated
from bench.prompts import BenchPrompt, load_prompts
from saguaro.client.requests import GenerateOptions
from saguaro.client.sync import AnswerStream
from saguaro.types import TokenIds

_WARM_UP_TOKENS = 4
_LEAST_PEER_SECONDS = 5.0  # on a busy machine transformers, on all cores, may take long for a token
_LEAST_TOKENS = 12  # fewer tell nothing of hits
_WARM_UP_PROMPT = BenchPrompt("chat", "Say hello to a friend whom you have not seen for years.")

OnTurn = Callable[[int, int, str], None]


@dataclass(slots=True)
class CellTurns:
    """All turns of one cell, by mode; each mode has the same batches, but for the last one of an interrupted run."""

    cell: Cell
    turns: dict[str, list[Turn]] = field(default_factory=dict)

    def add(self, turn: Turn) -> None:
        """One more of its mode."""
        self.turns.setdefault(turn.mode, []).append(turn)


def fitting_tokens(max_tokens: int, seconds_left: float | None, warm_up_seconds: float) -> int:
    """`max_tokens`, or fewer where one batch of such answers would not end in time, judging by the warm-up's pace."""
    if seconds_left is None:
        return max_tokens
    affordable = int(_WARM_UP_TOKENS * seconds_left / warm_up_seconds)
    return min(max_tokens, max(affordable, _LEAST_TOKENS))


class Runner:
    """Asks houses and peer. `deadline` is of the monotonic clock; `on_turn` hears (turns done, turns in all, mode).

    `measured` has what there is at any time, so that an interrupted run leaves what it has.
    """

    def __init__(
        self,
        plan: BenchPlan,
        houses: Mapping[str, House],
        peer: TransformersPeer | None,
        *,
        deadline: float | None,
        on_turn: OnTurn,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._houses = houses
        self._peer = peer
        self._deadline = deadline
        self._on_turn = on_turn
        self._clock = clock
        self.measured: list[CellTurns] = []
        self._prompt_ids: dict[BenchPrompt, TokenIds] = {}
        self._streams: set[AnswerStream] = set()
        self._pool = ThreadPoolExecutor(max(plan.concurrencies))

    def run(self) -> None:
        """Measure the cells that time allows; the first batch of the first cell is always measured."""
        plan = self._plan
        prompts = load_prompts(plan.kinds, plan.prompts_per_kind)
        work = [(cell, batches(prompts, cell.concurrency)) for cell in plan.cells]
        total = sum(len(items) for _, items in work) * len(plan.mode_names)
        max_tokens = self._warm_up()
        done, longest = 0, 0.0
        for cell, items in work:
            result = CellTurns(cell)
            for number, batch in enumerate(items):
                started = self._clock()
                if done and self._deadline is not None and started + longest > self._deadline:
                    return
                for mode in rotated(plan.mode_names, number):
                    self._on_turn(done, total, mode)
                    result.add(self._turn(mode, cell, number, batch, max_tokens))
                    done += 1
                    if not self.measured or self.measured[-1] is not result:
                        self.measured.append(result)
                longest = max(longest, self._clock() - started)
        self._on_turn(done, total, "")

    def _warm_up(self) -> int:
        """A short turn of every mode; what it took tells how many tokens an answer may have in the time there is."""
        started = self._clock()
        for mode in self._plan.mode_names:
            self._turn(mode, Cell(0.0, 1), 0, (_WARM_UP_PROMPT,), _WARM_UP_TOKENS)
        ended = self._clock()
        return fitting_tokens(
            self._plan.max_tokens, None if self._deadline is None else self._deadline - ended, ended - started
        )

    def close(self) -> None:
        """After the last turn, or in the midst of one: answers that still run are cancelled."""
        for stream in tuple(self._streams):
            stream.cancel()
        self._pool.shutdown(cancel_futures=True)

    def _turn(self, mode: str, cell: Cell, number: int, prompts: Sequence[BenchPrompt], max_tokens: int) -> Turn:
        if mode in self._houses:
            house = self._houses[mode]
            house.verifier.follow(house.policy)
            asked = [
                self._pool.submit(self._ask, house, prompt, cell, number + index, max_tokens)
                for index, prompt in enumerate(prompts)
            ]
            return Turn(mode, number, tuple(item.result() for item in asked))
        assert self._peer is not None
        answers = self._peer.answer(
            [self._ids(prompt) for prompt in prompts],
            assisted=mode == TRANSFORMERS_ASSISTED,
            assistant_tokens=self._plan.assistant_tokens,
            max_tokens=max_tokens,
            temperature=cell.temperature,
            seed=number,
            ignore_eos=self._plan.ignore_eos,
            stop_at=None if self._deadline is None else max(self._deadline, self._clock() + _LEAST_PEER_SECONDS),
        )
        return Turn(mode, number, answers)

    def _ask(self, house: House, prompt: BenchPrompt, cell: Cell, seed: int, max_tokens: int) -> TimedAnswer:
        """One answer of ours. The seed is the prompt's, so that every mode but rejection emits the same tokens."""
        sent_at = time.monotonic()
        options: GenerateOptions = {
            "temperature": cell.temperature,
            "seed": seed,
            "max_tokens": max_tokens,
            "ignore_eos": self._plan.ignore_eos,
            "include_rounds": True,
        }
        options.update(house.options)
        stream = house.client.generate([{"role": "user", "content": prompt.text}], **options)
        self._streams.add(stream)
        with stream:
            arrivals = tuple(Arrival(time.monotonic(), len(delta.token_ids)) for delta in stream if delta.token_ids)
        self._streams.discard(stream)
        answer = stream.result
        self._prompt_ids.setdefault(prompt, answer.prompt_token_ids)
        return TimedAnswer(
            sent_at,
            arrivals,
            answer.token_ids,
            cached_share=answer.num_cached_prompt_tokens / max(answer.num_prompt_tokens, 1),
            rounds=answer.speculation.rounds,
        )

    def _ids(self, prompt: BenchPrompt) -> TokenIds:
        """The prompt as our gateway's template and tokenizer make it, asked for by one token where none has yet."""
        if prompt not in self._prompt_ids:
            house = next(iter(self._houses.values()))
            self._ask(house, prompt, Cell(0.0, 1), 0, 1)
        return self._prompt_ids[prompt]
