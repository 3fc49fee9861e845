"""The demo target's chat template: SmolLM2's own where no tools are given, and one that teaches calls."""

from __future__ import annotations

from pathlib import Path

import pytest

import saguaro
from gateway.chat_template import ChatTemplate
from gateway.tools.forms import HERMES
from saguaro.answers import ChatMessage
from saguaro.tools import Tool, ToolCall

SOURCE = (Path(saguaro.__file__).parent / "data" / "demo-target" / "chat_template.jinja").read_text()
# As it ships with the weights.
OWN = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n"
    "'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
USER, SYSTEM = ChatMessage("user", " Hi \n"), ChatMessage("system", "Be brief.")
WEATHER = Tool("weather", "Größe", '{"type": "object"}')
CALLS = ChatMessage("assistant", "", (ToolCall("a", "weather", "{}"), ToolCall("b", "weather", '{"x": 1}')))


@pytest.mark.parametrize("chat", [[USER], [SYSTEM, USER], [USER, ChatMessage("assistant", "Yes?"), USER]])
def test_without_tools_it_prints_what_the_models_own_prints(chat: list[ChatMessage]) -> None:
    assert ChatTemplate(SOURCE, {}).render(chat) == ChatTemplate(OWN, {}).render(chat)


def test_it_teaches_calls_in_the_form_in_which_it_prints_them() -> None:
    template = ChatTemplate(SOURCE, {})
    assert template.call_form() == HERMES
    printed = template.render([SYSTEM, USER, CALLS, ChatMessage("tool", "sunny", (), "a")], [WEATHER])
    assert printed.startswith("<|im_start|>system\nBe brief.\n\nYou may call these functions:\n<tools>\n{")
    assert printed.endswith(
        '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "weather", "arguments": {"x": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert printed.count("Be brief.") == 1
