"""Asks a gateway for each prompt with speculation and without, and judges: the same tokens, or the same law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from saguaro.cli.comparison import Divergence, first_divergence
from saguaro.cli.law_test import LawTest, common_prefixes, same_law
from saguaro.client import Answer, Client
from saguaro.client.requests import GenerateOptions
from saguaro.types import AcceptanceMode

# Alternatives asked for with each token, among which the other run's token is looked for.
_TOP_LOGPROBS = 5
# The law of the first token, the first two, ... is tested. Later tokens are too many different ones.
_LONGEST_PREFIX = 4
_MOST_CHOICES = 64  # of one request
# A run of true equality is called different once in so many.
FALSE_ALARMS_ONE_IN = 1000

OnProgress = Callable[[int], None]  # prompts done


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run found."""

    acceptance: AcceptanceMode
    num_prompts: int
    num_answers: int  # with speculation; as many without
    num_tokens: int  # emitted with speculation
    num_accepted_tokens: int  # drafted ones among them
    divergences: tuple[Divergence, ...] = ()
    law_tests: tuple[LawTest, ...] = field(default=())

    @property
    def p_value(self) -> float:
        """The smallest of all tests, times their number (Bonferroni); 1 where none was made."""
        return min([1.0, *(test.p_value * len(self.law_tests) for test in self.law_tests)])

    @property
    def is_equal(self) -> bool:
        """The same tokens; in rejection mode, no sign of another law."""
        return not self.divergences and self.p_value >= 1 / FALSE_ALARMS_ONE_IN


def verify(
    client: Client, prompts: Sequence[str], options: GenerateOptions, num_samples: int, on_progress: OnProgress
) -> Verdict:
    """Tokens are compared where speculation must not change them, laws where answers come in rejection mode.

    `num_samples` answers a prompt, each way, are drawn to compare laws. Errors are the client's.
    """
    (probe,) = _answers(client, prompts[0], {**options, "max_tokens": 1, "n": 1})
    if probe.acceptance_mode is AcceptanceMode.REJECTION and options.get("temperature", 0.0) > 0:
        return compare_laws(client, prompts, options, num_samples, on_progress)
    return compare_tokens(client, prompts, options, {"speculation": False}, on_progress)


def compare_tokens(
    client: Client,
    prompts: Sequence[str],
    options: GenerateOptions,
    plain: GenerateOptions,
    on_progress: OnProgress,
) -> Verdict:
    """Each prompt with `options`, and again with what `plain` changes of them."""
    told: GenerateOptions = {**options, "logprobs": True, "top_logprobs": _TOP_LOGPROBS}
    pairs: list[tuple[int, Answer, Answer]] = []
    for index, prompt in enumerate(prompts):
        on_progress(index)
        speculated = _answers(client, prompt, told)
        pairs += [(index, *pair) for pair in zip(speculated, _answers(client, prompt, {**told, **plain}), strict=True)]
    on_progress(len(prompts))
    divergences = [first_divergence(index, speculated, plain) for index, speculated, plain in pairs]
    found = tuple(item for item in divergences if item is not None)
    return _verdict(AcceptanceMode.COUPLED, len(prompts), [speculated for _, speculated, _ in pairs], found, ())


def compare_laws(
    client: Client, prompts: Sequence[str], options: GenerateOptions, num_samples: int, on_progress: OnProgress
) -> Verdict:
    """Samples of one size with speculation and without, by different seeds: the two must know nothing of each other.

    For each prompt the law of the first token is tested, of the first two, and so on.
    """
    seed = options.get("seed") or 0
    drawn: list[Answer] = []
    tests: list[LawTest] = []
    for index, prompt in enumerate(prompts):
        on_progress(index)
        speculated = _sample(client, prompt, {**options, "seed": seed}, num_samples)
        plain = _sample(client, prompt, {**options, "seed": seed + num_samples, "speculation": False}, num_samples)
        length = min(options.get("max_tokens") or _LONGEST_PREFIX, _LONGEST_PREFIX)
        tests += [same_law(_prefixes(speculated, prefix), _prefixes(plain, prefix)) for prefix in range(1, length + 1)]
        drawn += speculated
    on_progress(len(prompts))
    return _verdict(drawn[0].acceptance_mode, len(prompts), drawn, (), tuple(tests))


def _sample(client: Client, prompt: str, options: GenerateOptions, num_samples: int) -> list[Answer]:
    """Answers with noise of their own, each request with a seed of its own: seed, seed + 1, ..."""
    answers: list[Answer] = []
    seed = options["seed"] or 0
    while len(answers) < num_samples:
        n = min(num_samples - len(answers), _MOST_CHOICES)
        answers += _answers(client, prompt, {**options, "n": n, "seed": seed})
        seed += 1
    return answers


def _answers(client: Client, prompt: str, options: GenerateOptions) -> tuple[Answer, ...]:
    with client.generate(_chat(prompt), **options) as stream:
        stream.finish()
        return stream.results


def _chat(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def _prefixes(answers: Sequence[Answer], length: int) -> list[tuple[int, ...]]:
    return common_prefixes([answer.token_ids for answer in answers], length)


def _verdict(
    acceptance: AcceptanceMode,
    num_prompts: int,
    speculated: Sequence[Answer],
    divergences: tuple[Divergence, ...],
    law_tests: tuple[LawTest, ...],
) -> Verdict:
    return Verdict(
        acceptance=acceptance,
        num_prompts=num_prompts,
        num_answers=len(speculated),
        num_tokens=sum(len(answer.token_ids) for answer in speculated),
        num_accepted_tokens=sum(answer.speculation.num_accepted_tokens for answer in speculated),
        divergences=divergences,
        law_tests=law_tests,
    )
