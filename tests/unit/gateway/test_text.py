"""The text side against transformers, which the gateway itself never loads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from gateway.chat_template import ChatTemplate
from gateway.text import TextModel
from saguaro.answers import ChatMessage, ChatPrompt, TextPrompt, TokenPrompt
from saguaro.errors import ConfigurationError, InvalidRequest
from tests.unit.gateway.text_folder import write_text_folder

CHATS = [
    [ChatMessage("user", "Größe?  \n")],
    [ChatMessage("system", "Be brief."), ChatMessage("user", "仙人掌"), ChatMessage("assistant", "🌵")],
    [ChatMessage("user", ""), ChatMessage("assistant", "{{ messages }}"), ChatMessage("user", "<|im_end|>")],
]
TRICKY = """{% for message in messages %}
    {%- if loop.first %}{{ bos_token }}{% endif %}
    {% if message.role == 'system' %}{% continue %}{% endif %}
  {% generation %}{{ message | tojson }} {{ message.content | tojson(indent=2) }}{% endgeneration %}
{% endfor %}
{{ unknown_token }}{{ eos_token }}"""


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("template", ["plain", "tricky"])
def test_a_chat_becomes_the_very_tokens_that_transformers_makes_of_it(
    tmp_path: Path, template: str, chat: list[ChatMessage]
) -> None:
    folder = write_text_folder(tmp_path, **({"template": TRICKY} if template == "tricky" else {}))
    reference = AutoTokenizer.from_pretrained(folder)
    plain = [{"role": item.role, "content": item.content} for item in chat]
    expected = reference.apply_chat_template(plain, add_generation_prompt=True, return_dict=False)
    text = TextModel.from_folder(folder)
    assert text.encode_prompt(ChatPrompt(tuple(chat))) == tuple(expected)
    assert len(expected) > 3


def test_text_becomes_the_very_tokens_that_transformers_makes_of_it_and_back(text_folder: Path) -> None:
    reference = AutoTokenizer.from_pretrained(text_folder)
    text = TextModel.from_folder(text_folder)
    prompt = "Größe 仙人掌 🌵 <|im_end|> \n\n end"
    ids = text.encode_prompt(TextPrompt(prompt))
    assert ids == tuple(reference(prompt)["input_ids"])
    assert text.decode(list(ids)) == reference.decode(ids, skip_special_tokens=True)
    assert text.vocabulary_size == len(reference)


def test_token_prompts_pass_as_they_are(text_folder: Path) -> None:
    assert TextModel.from_folder(text_folder).encode_prompt(TokenPrompt((9, 8))) == (9, 8)


def test_a_template_in_the_tokenizer_config_counts_where_there_is_no_file(tmp_path: Path) -> None:
    folder = write_text_folder(tmp_path, template=None)
    config = folder / "tokenizer_config.json"
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes {{ eos_token }}"}]
    for configured in (named, "yes {{ eos_token }}"):
        config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": configured}))
        template = ChatTemplate.from_folder(folder)
        assert template is not None
        assert template.render(CHATS[0]) == "yes <|im_end|>"


def test_a_model_without_a_template_takes_text_only(tmp_path: Path) -> None:
    text = TextModel.from_folder(write_text_folder(tmp_path, template=None))
    with pytest.raises(InvalidRequest, match="no chat template; send the prompt as text"):
        text.encode_prompt(ChatPrompt((CHATS[0][0],)))


@pytest.mark.parametrize(
    "source", ["{{ messages.append(1) }}", "{{ ''.__class__.__mro__ }}", "{{ messages[99].role }}"]
)
def test_a_template_that_breaks_out_or_breaks_refuses_the_request(source: str) -> None:
    with pytest.raises(InvalidRequest, match="refuses these messages"):
        ChatTemplate(source, {}).render(CHATS[0])


def test_an_empty_chat_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="has no messages"):
        ChatTemplate("x", {}).render([])


def test_folders_that_cannot_serve_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no tokenizer\.json in"):
        TextModel.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"tokenizer\.json cannot be read"):
        TextModel.from_folder(tmp_path)
