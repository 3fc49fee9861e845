"""The tokenizer of emulated models: any text in, made-up words out.

Ids: 256 bytes, so that every prompt can be tokenized; the begin and end of a message; then words, which are what
emulated models answer with.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from saguaro.model_paths import cache_folder

_NUM_BYTES = 256
_BEGIN, _END = "<|im_start|>", "<|im_end|>"
EOS_ID = _NUM_BYTES + 1
FIRST_WORD_ID = _NUM_BYTES + 2

# Part of the folder's name: another layout of the ids is another folder.
_LAYOUT = 1
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' "
    "+ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def tokenizer_folder(vocabulary: int) -> Path:
    """Folder of the tokenizer with `vocabulary` ids, in the cache; written now if it is not there yet."""
    folder = cache_folder() / "tokenizers" / f"emulated-{_LAYOUT}-{vocabulary}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _write_and_publish(vocabulary, folder)
    return folder


def _write_and_publish(vocabulary: int, folder: Path) -> None:
    """Writes beside `folder` and renames, so that it appears whole; processes that race write the same."""
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write(vocabulary, work)
        work.chmod(0o755)  # mkdtemp makes it private
        work.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process was first
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write(vocabulary: int, folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), _BEGIN, _END]
    # A word begins with a blank, which the byte-level alphabet spells so.
    tokens += [f"Ġ{_word(index)}" for index in range(vocabulary - FIRST_WORD_ID)]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (_BEGIN, _END)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": _END, "chat_template": _CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _word(index: int) -> str:
    """Another word for every index: its digits to the base of the number of syllables, at least two."""
    word = ""
    while index or len(word) < 4:
        index, digit = divmod(index, len(_SYLLABLES))
        word = _SYLLABLES[digit] + word
    return word
