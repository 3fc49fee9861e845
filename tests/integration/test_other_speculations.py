"""One seed, the demo target, and every way of speculating: the same tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from saguaro.cli.trio import Trio
from saguaro.client import Answer, Client
from saguaro.model_paths import demo_draft_folder
from tests.integration.prompts import PROMPTS, chat

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def ask(trio: Trio, speculation: bool = True) -> Answer:
    with Client(trio.gateway_address) as client:
        options = {"temperature": 0.8, "seed": 11, "max_tokens": 96, "ignore_eos": True}
        return client.generate(chat(PROMPTS[4]), speculation=speculation, **options).finish()  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def random_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo draft's shape with weights drawn at random."""
    folder = tmp_path_factory.mktemp("random-draft")
    (folder / "config.json").write_bytes((demo_draft_folder() / "config.json").read_bytes())
    generator = torch.Generator().manual_seed(0)
    weights = load_file(demo_draft_folder() / "model.safetensors")
    drawn = {
        name: weight if weight.ndim == 1 else 0.02 * torch.randn(weight.shape, generator=generator).to(weight.dtype)
        for name, weight in sorted(weights.items())
    }
    save_file(drawn, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def expected(demo_trio: Trio) -> Answer:
    return ask(demo_trio, speculation=False)


def test_lookahead_4_says_what_plain_decoding_says(demo_trio: Trio, expected: Answer) -> None:
    answer = ask(demo_trio)
    assert answer.speculation.num_accepted_tokens > 0
    assert answer.token_ids == expected.token_ids


@pytest.mark.parametrize("lookahead", [2, 6])
def test_another_lookahead_says_the_same(expected: Answer, lookahead: int) -> None:
    with Trio(verifier_flags=["--lookahead", str(lookahead)]) as trio:
        answer = ask(trio)
    assert answer.speculation.num_accepted_tokens > 0
    assert answer.token_ids == expected.token_ids


def test_a_random_draft_says_the_same(expected: Answer, random_draft: Path) -> None:
    with Trio(draft=str(random_draft)) as trio:
        answer = ask(trio)
    assert answer.speculation.num_draft_tokens > 0
    assert answer.token_ids == expected.token_ids
