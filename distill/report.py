"""What the draft costs, what it should bring, and the model card that says both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distill.checkpoint import Progress
from distill.evaluation import LOOKAHEADS
from distill.plan import DistillPlan
from distill.served import OnText, ServedFigures, served_figures
from distill.shards import Sample
from saguaro.core.cost_model import DraftTimes, RoundTimes, plain_speed, sd_speed, ssd_speed
from saguaro.engine.fast_model import Role
from saguaro.engine.loading import load_model
from saguaro.engine.model_runner import ModelRunner
from saguaro.engine.profile_forward import CONTEXT_TOKENS, forward_at, median_ms

DRAFT_ROWS = (1, 8, 24)
_TARGET_ROWS = (1, *(k + 1 for k in LOOKAHEADS), 8)
_FAN_OUT = 4  # guesses at each place, of the predictions
_REPEATS = 7
_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Report:
    """Milliseconds by rows of a forward, and tokens per second that the cost model predicts, greedy, by K."""

    draft_ms: dict[int, float]
    target_ms: dict[int, float]
    plain: float
    sd: dict[int, float]
    ssd: dict[int, float]
    megabytes: float
    served: ServedFigures

    @property
    def lines(self) -> list[str]:
        """For people."""
        draft = ", ".join(f"{rows} rows {ms:.1f} ms" for rows, ms in self.draft_ms.items())
        target = ", ".join(f"{rows} rows {ms:.1f} ms" for rows, ms in self.target_ms.items())
        share = self.draft_ms[8] / self.target_ms[8]
        return [
            f"as it is served: greedy agreement {self.served.greedy_agreement:.3f}, at temperature 1 overlap "
            f"{self.served.overlap:.3f}, coupled acceptance {self.served.coupled_acceptance:.3f}",
            f"draft, {self.megabytes:.1f} MB: {draft}",
            f"target: {target}; the draft's step at 8 rows is {share:.2f} of a verification of 8",
            f"predicted, greedy, one sequence: plain {self.plain:.1f} tok/s",
            *(
                f"  K = {k}: SD {self.sd[k]:.1f}, SSD {self.ssd[k]:.1f} tok/s, {self.ssd[k] / self.plain:.2f} x plain"
                for k in LOOKAHEADS
            ),
        ]


def report_on(plan: DistillPlan, progress: Progress, held_out: Sequence[Sample], on_text: OnText) -> Report:
    """Times both models as they are served, judges the draft, predicts, and writes the model card."""
    longest_text = max(len(sample.token_ids) for sample in held_out)
    draft_runner = _runner(str(plan.draft_folder), longest_text, embeddings_from=plan.target)
    target_runner = _runner(plan.target, longest_text)
    draft = _forward_ms(draft_runner, DRAFT_ROWS)
    target = _forward_ms(target_runner, _TARGET_ROWS)
    figures = served_figures(target_runner, draft_runner, held_out, on_text)
    last = progress.curve[-1]
    sd, ssd = {}, {}
    for k in LOOKAHEADS:
        tokens = last[f"greedy_tokens_k{k}"]
        # A step of the pre-speculation carries one row a guess: 8 as measured stands for them all.
        steps = DraftTimes(extend=draft[8] / 1e3, step=draft[8] / 1e3)
        alone = DraftTimes(extend=draft[1] / 1e3, step=draft[1] / 1e3)
        times = RoundTimes(target[k + 1] / 1e3, steps.pre_speculation(k), alone.just_in_time(k))
        sd[k] = sd_speed(tokens, times)
        ssd[k] = ssd_speed(last[f"hits_k{k}_f{_FAN_OUT}"], tokens, tokens, times)
    size = sum(file.stat().st_size for file in plan.draft_folder.glob("*.safetensors")) / 1e6
    report = Report(draft, target, plain_speed(target[1] / 1e3), sd, ssd, size, figures)
    _write_card(plan.draft_folder / "README.md", plan, progress, report)
    return report


def _runner(spec: str, longest_text: int, embeddings_from: str | None = None) -> ModelRunner:
    role: Role = "target" if embeddings_from is None else "draft"
    loaded = load_model(spec, dtype="float32", device="cpu", embeddings_from=embeddings_from, linear="auto", role=role)
    tokens = [*(CONTEXT_TOKENS + count for count in {*DRAFT_ROWS, *_TARGET_ROWS}), longest_text]
    blocks = sum(-(-count // _BLOCK_SIZE) for count in tokens)
    return ModelRunner(loaded.model, num_blocks=blocks, block_size=_BLOCK_SIZE)


def _forward_ms(runner: ModelRunner, rows: tuple[int, ...]) -> dict[int, float]:
    context = min(CONTEXT_TOKENS, runner.context_limit - max(rows))
    return dict(zip(rows, median_ms([forward_at(runner, count, context) for count in rows], _REPEATS), strict=True))


def _write_card(file: Path, plan: DistillPlan, progress: Progress, report: Report) -> None:
    first, last = progress.curve[0], progress.curve[-1]
    figures = "\n".join(
        f"| {label} | {first[name]:.3f} | {last[name]:.3f} |"
        for name, label in {
            "greedy_agreement": "greedy agreement",
            "top3_agreement": "target's choice among the draft's top 3",
            "overlap": "overlap at T = 1 (acceptance in rejection mode), at least",
            "coupled_acceptance": "coupled acceptance at T = 1, at least",
            "greedy_tokens_k4": "greedy tokens a round at K = 4",
            "hits_k4_f4": "hit rate at K = 4, 4 guesses a place",
        }.items()
    )
    lines = "\n".join(f"    {line}" for line in report.lines)
    work = file.with_name(".README.partial")
    work.write_text(
        f"""# Draft for {plan.target}

Made by `saguaro distill`. Embeddings and LM head are the target's (`shares_embeddings_with_target`); only layers and
the final norm are stored, in fp16. It is a draft of this target alone, under the target's licence.

Trained by KL and total variation to the target's likeliest tokens on texts that the target wrote itself:
{progress.steps:,} steps, {progress.tokens:,} tokens (repetitions included), {progress.seconds / 3600:.2f} hours on
{plan.threads} thread(s).

Held-out texts, of templates and topics that it was not trained on, {last["num_positions"]:,.0f} positions:

| | before training | now |
|---|---|---|
{figures}

Its worth and its times as the services run it (whole laws, an int8 draft), on the machine that trained it, and what
the cost model makes of them:

{lines}
"""
    )
    work.replace(file)
