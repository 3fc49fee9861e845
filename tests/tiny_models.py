"""Model folders for tests: standard Hugging Face files, random weights, ready in a fraction of a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM

EOS_TOKEN = "<|im_end|>"
SPECIAL_TOKENS = ("<|im_start|>", EOS_TOKEN)
NUM_BYTE_TOKENS = 256
IM_START_ID, EOS_ID = NUM_BYTE_TOKENS, NUM_BYTE_TOKENS + 1
CHAT_TEMPLATE = (
    '{% if tools %}{{ \'<|im_start|>system\\n<tool_call>\\n{"name": , "arguments": }\\n</tool_call>\' }}'
    "{% for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
    "{% for call in message['tool_calls'] %}{{ '<tool_call>\\n{\"name\": \"' + call['function']['name'] "
    "+ '\", \"arguments\": ' + (call['function']['arguments'] | tojson) + '}\\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_FAMILY_EXTRAS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {},
    "gemma2": {"sliding_window": 128, "query_pre_attn_scalar": 16},
}


def write_tiny_model(
    folder: Path,
    *,
    seed: int,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int | None = None,
    max_positions: int = 512,
    family: str = "llama",
    init_scale: float = 0.25,
    extra_token: str | None = None,
) -> Path:
    """A random model of `family` with a byte-level tokenizer, the same for the same arguments; returns `folder`.

    The weights are wide enough (`init_scale` is their standard deviation) that greedy answers wander through the
    vocabulary instead of repeating one token. Ids: 256 bytes, then `SPECIAL_TOKENS`, then `extra_token` if given, which
    makes a different tokenizer. `vocab` is the number of embeddings, that of tokens if None.
    """
    folder.mkdir(parents=True, exist_ok=True)
    num_tokens = write_tokenizer(folder, extra_token)
    config = AutoConfig.for_model(
        family,
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden // heads,
        vocab_size=num_tokens if vocab is None else vocab,
        max_position_embeddings=max_positions,
        tie_word_embeddings=False,
        bos_token_id=IM_START_ID,
        eos_token_id=EOS_ID,
        pad_token_id=None,
        **_FAMILY_EXTRAS[family],
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    config.architectures = [type(model).__name__]
    config.dtype = "float32"
    config.save_pretrained(folder)
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: _random_weight(name, parameter.shape, init_scale, generator)
        for name, parameter in model.named_parameters()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": IM_START_ID, "eos_token_id": EOS_ID}))
    return folder


def noisy_copy(folder: Path, out: Path, noise: float, seed: int = 1) -> Path:
    """The model in `folder` with relative noise on its matrices: a draft that often agrees with it; returns `out`.

    With the default tiny model, the most probable token is the same for 89 % of random contexts at noise 0.01, 78 % at
    0.02, 50 % at 0.05, 26 % at 0.1 and 10 % at 0.2.
    """
    out.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.suffix != ".safetensors":
            (out / file.name).write_bytes(file.read_bytes())
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: weight
        if weight.ndim == 1
        else weight + noise * weight.std() * torch.randn(weight.shape, generator=generator)
        for name, weight in sorted(load_file(folder / "model.safetensors").items())
    }
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    return out


def _random_weight(name: str, shape: torch.Size, init_scale: float, generator: torch.Generator) -> torch.Tensor:
    if len(shape) == 1:  # norms near one, biases near zero
        return (1.0 if "norm" in name else 0.0) + 0.1 * torch.randn(shape, generator=generator)
    scale = 1.0 if "embed" in name else init_scale
    return scale * torch.randn(shape, generator=generator)


def write_tokenizer(folder: Path, extra_token: str | None = None) -> int:
    """Writes the files of the byte-level tokenizer; returns the number of its tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    assert len(alphabet) == NUM_BYTE_TOKENS
    tokenizer = Tokenizer(models.BPE(vocab={character: index for index, character in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = SPECIAL_TOKENS if extra_token is None else (*SPECIAL_TOKENS, extra_token)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[0],
        "eos_token": EOS_TOKEN,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return int(tokenizer.get_vocab_size())
