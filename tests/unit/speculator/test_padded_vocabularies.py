"""Target and draft of one tokenizer, their embeddings padded differently: drafted all the same, nobody malformed."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from saguaro.types import (
    AcceptanceMode,
    GenerationRequest,
    NotSpeculatingReason,
    SamplingParams,
    SpeculatorFrame,
    VerificationOutcome,
    VerifierFrame,
)
from tests.tiny_models import noisy_copy, write_tiny_model
from tests.unit.services.in_memory_trio import InMemoryTrio
from tests.unit.speculator.lone_speculator import LoneSpeculator, Verifier, opening
from tests.unit.speculator.port import running_port
from tests.unit.speculator.test_port import run

NUM_TOKENS, PADDED = 258, 320
PROMPT = tuple(range(40, 63))
SAMPLINGS = [
    SamplingParams(),
    SamplingParams(temperature=0.8, seed=5),
    SamplingParams(temperature=0.8, seed=5, acceptance=AcceptanceMode.REJECTION),
    SamplingParams(
        temperature=0.8,
        seed=5,
        repetition_penalty=1.2,
        presence_penalty=0.4,
        min_tokens=8,
        stop_token_ids=(200, 319),
        logit_bias=((300, 3.0), (90, 1.0)),
    ),
]


def with_rows(folder: Path, out: Path, num_rows: int) -> Path:
    """The same model with fewer rows of embeddings and head."""
    shutil.copytree(folder, out)
    weights = load_file(folder / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = weights[name][:num_rows].clone()
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "vocab_size": num_rows}))
    return out


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A padded target and its draft."""
    folder = tmp_path_factory.mktemp("wide")
    target = write_tiny_model(folder / "target", seed=1, vocab=PADDED, max_positions=256)
    return target, noisy_copy(target, folder / "draft", noise=0.03)


@pytest.fixture(scope="module")
def narrow(wide: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same, not padded."""
    folder = tmp_path_factory.mktemp("narrow")
    target, draft = (with_rows(model, folder / model.name, NUM_TOKENS) for model in wide)
    return target, draft


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "coupled", "rejection", "penalised"])
@pytest.mark.parametrize("is_target_wide", [False, True])
def test_models_that_are_padded_differently_speculate(
    wide: tuple[Path, Path], narrow: tuple[Path, Path], sampling: SamplingParams, is_target_wide: bool
) -> None:
    target, draft = (wide[0], narrow[1]) if is_target_wide else (narrow[0], wide[1])
    if not is_target_wide:
        sampling = SamplingParams(temperature=sampling.temperature, seed=5, acceptance=sampling.acceptance)
    request = GenerationRequest("r", PROMPT, sampling, max_tokens=60, ignore_eos=True)
    trio = InMemoryTrio(target, draft, draft_tokens=NUM_TOKENS)
    answer = trio.generate(request)
    if sampling.acceptance is not AcceptanceMode.REJECTION:
        assert answer.tokens == InMemoryTrio(target, None).generate(request).tokens
    assert answer.finished.speculation.speculating
    assert answer.finished.speculation.num_accepted_tokens > 0
    assert trio.speculations.num_malformed == 0
    statuses = [status for frame in trio.frames if isinstance(frame, SpeculatorFrame) for status in frame.statuses]
    assert not statuses
    trio.assert_all_blocks_free()


def test_ids_of_the_targets_padding_are_read_and_ids_of_no_vocabulary_refused(draft: Path) -> None:
    speculator = LoneSpeculator(draft)
    verifier = Verifier(speculator)
    verifier.open(1, [*range(40), 319, 300], repetition_penalty=1.2)
    verifier.open(2, [*range(40), 10**6])
    speculator.run()
    verifier.commit(1, 0, VerificationOutcome(0, 310), (5, 290, 6))
    speculator.run()
    verifier.commit(1, 1, VerificationOutcome(2, 311))
    speculator.run()
    assert verifier.refusals == [(2, NotSpeculatingReason.MALFORMED)]
    assert verifier.entries_of(1)[-1].round == 2
    assert verifier.stream.sessions[1].prefix == [*range(40), 319, 300, 310, 5, 290, 311]


@pytest.mark.parametrize("acceptance", list(AcceptanceMode))
def test_a_padded_draft_proposes_and_ranks_tokens_only(wide: tuple[Path, Path], acceptance: AcceptanceMode) -> None:
    draw = random.Random(3)
    opens = tuple(
        opening(number, [draw.randrange(256) for _ in range(20)], temperature=2.0, seed=number, acceptance=acceptance)
        for number in range(4)
    )

    async def scenario() -> None:
        async with running_port(wide[1], kv_tokens=1 << 14) as port, port.stream() as link:
            await link.say(VerifierFrame(1, 6, 24, opens=opens))
            await link.hear_complete(range(4), round=0)
            pieces = [piece for entries in link.entries for piece in entries.pieces]
            assert max(piece.outcome.bonus_token for piece in pieces) < NUM_TOKENS
            assert max(max(piece.token_ids) for piece in pieces) < NUM_TOKENS
            laws = b"".join(law.token_ids for piece in pieces for law in piece.distributions)
            if laws:
                assert int(torch.frombuffer(bytearray(laws), dtype=torch.int32).max()) < NUM_TOKENS

    run(scenario)
