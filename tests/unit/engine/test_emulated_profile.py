"""Profiles say what they mean, and their tokenizer takes any text."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from gateway.text import TextModel
from saguaro.answers import ChatMessage, ChatPrompt
from saguaro.core.fan_out import geometric_fan_out, outcome_probabilities
from saguaro.emulation import tokenizer
from saguaro.emulation.profile import Profile, load_profile, shipped_profiles
from saguaro.emulation.tokenizer import EOS_ID, FIRST_WORD_ID, tokenizer_folder
from saguaro.engine.emulated import load_emulated
from saguaro.errors import ConfigurationError

SMALL = """
vocabulary = 500
acceptance_rate = 0.5
rank_exponent = 1
context_limit = 512
[target]
base_ms = 2
[draft]
base_ms = 1
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SAGUARO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def written(folder: Path, text: str) -> str:
    file = folder / "mine.toml"
    file.write_text(text)
    return str(file)


def tokens_per_round(profile: Profile, lookahead: int) -> float:
    return sum((k + 1) * p for k, p in enumerate(outcome_probabilities(lookahead, profile.acceptance_rate)))


def hit_rate(profile: Profile, lookahead: int, budget: int) -> float:
    """Of the geometric fan-out, with the emulated law: after the last draft token the first candidate has P = a."""
    a, r = profile.acceptance_rate, profile.rank_exponent
    fan_out = geometric_fan_out(lookahead, budget, a, r)
    hits = [1 - (1 + count) ** -r for count in fan_out[:-1]] + [1 - (1 - a) * fan_out[-1] ** -r]
    return sum(p * hit for p, hit in zip(outcome_probabilities(lookahead, a), hits, strict=True))


@pytest.mark.parametrize(
    ("name", "plain", "synchronous", "hits"),
    [("llama-3.1-70b-h100x4", 54.7, 161.8, 0.90), ("qwen3-32b", 88.8, 136.8, 0.75)],
)
def test_shipped_profiles_have_the_papers_speeds(name: str, plain: float, synchronous: float, hits: float) -> None:
    profile = load_profile(name)
    assert 1e3 / profile.target.base_ms == pytest.approx(plain, rel=0.005)
    round_ms = profile.target.milliseconds(7) + 6 * profile.draft.base_ms
    assert 1e3 * tokens_per_round(profile, 6) / round_ms == pytest.approx(synchronous, rel=0.01)
    assert hit_rate(profile, lookahead=6, budget=24) == pytest.approx(hits, abs=0.01)


def test_every_shipped_profile_loads_under_its_name() -> None:
    assert {"llama-3.1-70b-h100x4", "llama-3.1-8b", "qwen3-32b"} <= set(shipped_profiles())
    for name in shipped_profiles():
        assert load_profile(name).name == name


def test_a_profile_of_ones_own_is_named_after_its_file(tmp_path: Path) -> None:
    model = load_emulated(written(tmp_path, SMALL))
    assert model.identity.name == "emulated-mine"
    assert model.identity.usable_vocabulary_tokens == 500
    assert model.identity.context_limit_tokens == 512
    assert model.eos_token_ids == (EOS_ID,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL.replace("0.5", "1.5"), "acceptance_rate: .*less than or equal to 1"),
        (SMALL.replace("base_ms = 1", "base = 1"), "draft.base_ms: Field required; draft.base: Extra"),
        (SMALL.replace("vocabulary = 500", ""), "vocabulary: Field required"),
        (SMALL + "[faults.draught]", "faults.draught: Extra"),
        ("vocabulary", "not TOML"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_profile(written(tmp_path, text))


def test_an_unknown_profile_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"no emulation profile llama .*one of llama-3\.1-70b-h100x4"):
        load_profile("llama")


def test_any_text_survives_the_tokenizer_and_words_are_readable() -> None:
    text = TextModel.from_folder(tokenizer_folder(2048))
    assert text.decode(list(text.encode("Größe? 🌵\n"))) == "Größe? 🌵\n"
    assert text.vocabulary_size == 2048
    assert text.special_ids == {EOS_ID - 1, EOS_ID}
    words = [text.decode([token_id]) for token_id in range(FIRST_WORD_ID, 2048)]
    assert len(set(words)) == len(words)
    assert all(word[0] == " " and word[1:].isalpha() for word in words)


def test_chat_prompts_are_rendered() -> None:
    text = TextModel.from_folder(tokenizer_folder(500))
    ids = text.encode_prompt(ChatPrompt((ChatMessage("user", "hi"),)))
    assert EOS_ID in ids
    assert text.decode(list(ids)) == "user\nhi\nassistant\n"


def test_processes_that_write_the_tokenizer_at_once_all_find_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Barrier(3)
    write = tokenizer._write

    def write_together(vocabulary: int, folder: Path) -> None:
        write(vocabulary, folder)
        gate.wait(20)

    monkeypatch.setattr(tokenizer, "_write", write_together)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(tokenizer_folder(600))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 3
    assert Tokenizer.from_file(str(found[0] / "tokenizer.json")).get_vocab_size() == 600
    assert [item.name for item in found[0].parent.iterdir()] == [found[0].name]
