"""A model folder with the text side only: a byte-level tokenizer with real merges, and a chat template."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL_TOKENS = ["<|im_start|>", "<|im_end|>"]
EOS_ID = 1
TEMPLATE = """{% for message in messages %}
{% if message['role'] == 'robot' %}{{ raise_exception('no robots') }}{% endif %}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + eos_token + '\n' -}}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

_CORPUS = [
    "The saguaro stands in the desert and the desert stands still.",
    "Ein Kaktus, größer als ein Haus, wächst langsam über Jahre. " * 3,
    "仙人掌生长在沙漠里。沙漠很大。仙人掌很高。" * 4,
    "🌵🌵🌵 👩‍🚀 🌵 ❤️ 🌵" * 4,
]


def byte_level_tokenizer(vocab_size: int = 420) -> Tokenizer:
    """Trained on a few sentences, so that tokens hold whole words, whole characters and parts of characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL_TOKENS,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def byte_fallback_tokenizer() -> Tokenizer:
    """As Llama 2 and Gemma decode: "▁" for spaces, bytes for what the vocabulary lacks, one leading space dropped."""
    words = ["<unk>", "</s>", "▁", "▁the", "▁cactus", "s", "沙", "é", "▁🌵", "�"]
    vocab = {word: index for index, word in enumerate(words)}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(words) + byte
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


def write_text_folder(folder: Path, template: str | None = TEMPLATE) -> Path:
    """tokenizer.json, tokenizer_config.json and, unless None, chat_template.jinja; returns `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    config = {
        "bos_token": "<|im_start|>",
        "eos_token": {"__type": "AddedToken", "content": "<|im_end|>", "special": True},
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder
