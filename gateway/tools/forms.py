"""How models write calls, told by their chat templates."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class CallForm:
    """A call is `opening`, a JSON object with "name" and `arguments_key`, `closing`; between them stands `padding`.

    Without an opening an answer that begins with "{" is a call. `several`: calls may follow one another.
    `begins_in_thought`: the prompt ends inside of a thought, so the answer begins there.
    """

    opening: str
    closing: str
    padding: str
    arguments_key: str
    several: bool
    begins_in_thought: bool = False


# Hermes, Qwen 2.5 and 3, and others after them.
HERMES = CallForm("<tool_call>", "</tool_call>", "\n", "arguments", several=True)
# Llama 3.1 and later; their template takes one call a message.
LLAMA_JSON = CallForm("", "", "", "parameters", several=False)

THOUGHT, THOUGHT_END = "<think>", "</think>"

# Of forms that share the Hermes markers and put no JSON between them: Qwen3-Coder's, GLM's.
_OTHERS_BETWEEN_THE_MARKERS = ("<function=", "<arg_key>")


def form_of(template: str) -> CallForm | None:
    """The form in which a template's source shows the model its own calls; None where it is none of ours."""
    source = template.replace('\\"', '"')
    form = None
    if HERMES.opening in source:
        form = None if any(mark in source for mark in _OTHERS_BETWEEN_THE_MARKERS) else HERMES
    elif '"name": ' in source and '"parameters": ' in source:
        form = LLAMA_JSON
    prompt_end = source.rpartition("add_generation_prompt")[2]
    if form is None or prompt_end.count(THOUGHT) <= prompt_end.count(THOUGHT_END):
        return form
    return replace(form, begins_in_thought=True)
