"""A tiny random model of any family that transformers knows: the family's own config, shrunk."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.tiny_models import EOS_ID, IM_START_ID, write_tokenizer

VOCAB = 260
# By field, as families call them; each config takes those that it has.
_SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "bos_token_id": IM_START_ID,
    "eos_token_id": EOS_ID,
    "pad_token_id": None,
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embedding_size"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("head_dim", "rotary_dim", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "v_head_dim"), 16),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner"), 128),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 512),
    "sliding_window": 128,
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_k", "moe_topk"), 2),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "first_k_dense_replace"), 1),
}


def small_config(family: str, **changes: Any) -> Any:
    """The config of a model of two layers, 64 wide; `changes` win over what makes it small, None leaves a default."""
    kind = type(AutoConfig.for_model(family))
    usual = kind()
    known = {
        name: value
        for name, value in _SMALL.items()
        if name in vars(usual) or name in usual.attribute_map or name in getattr(kind, "__dataclass_fields__", {})
    }
    return kind(
        **{name: value for name, value in (known | changes).items() if name not in changes or value is not None}
    )


def write_config(folder: Path, config: Any) -> Path:
    """A folder with config and tokenizer, but no weights; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_model(folder: Path, config: Any, seed: int = 0) -> Path:
    """A folder with a random model of this config, wide enough that its answers wander; returns it."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:
                weight.add_(0.1 * torch.randn(weight.shape))
            else:
                weight.normal_(0, 1.0 if "embed" in name else 0.25)
    model.save_pretrained(folder)
    return write_config(folder, model.config)
