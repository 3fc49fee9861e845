"""The demo target under plain transformers: what it would have said alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from saguaro.model_paths import demo_target_folder

NEAR_TIE = 1e-3  # of two logits; forwards of different shapes round differently


@lru_cache(maxsize=1)
def demo_target() -> PreTrainedModel:
    """The weights that the verifier loads, in stock transformers."""
    return AutoModelForCausalLM.from_pretrained(demo_target_folder(), dtype=torch.float32)


@torch.inference_mode()
def first_divergence(prompt: Sequence[int], answer: Sequence[int]) -> str | None:
    """Compare an answer with the target's own greedy choices, all positions in one forward.

    None if each token is the argmax after those before it, which is what `generate(do_sample=False)` picks; else a
    sentence. Choices between logits closer than NEAR_TIE are printed and pass.
    """
    tokens = torch.tensor([[*prompt, *answer]])
    logits = demo_target()(tokens, use_cache=False).logits[0, len(prompt) - 1 : -1]
    for index, (row, token) in enumerate(zip(logits, answer, strict=True)):
        if int(row.argmax()) == token:
            continue
        gap = float(row.max() - row[token])
        sentence = f"token {index} is {token}, the target's argmax {int(row.argmax())}, logits {gap:.2e} apart"
        if gap >= NEAR_TIE:
            return sentence
        print("near tie:", sentence)
    return None


@torch.inference_mode()
def greedy(prompt: Sequence[int], max_tokens: int) -> list[int]:
    """`generate(do_sample=False)`."""
    ids = torch.tensor([list(prompt)])
    output = demo_target().generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=max_tokens
    )
    return output[0, len(prompt) :].tolist()
