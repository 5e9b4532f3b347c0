"""Token ids of published texts by a `tokenizer.json`.

`tokens` are the ids of the text alone: no special tokens are added, and no end-of-document id (the loader appends the
manifest's `eos_id`), so `n_tokens` does not count one. Ids are uint32 end to end.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import fsspec
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pipeline.errors import UsageError
from pipeline.recipe import Publish

Ids = npt.NDArray[np.uint32]

#: Names that vocabularies give to the end of a document, most telling first.
EOS_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<|end|>")
#: Longer texts are encoded in pieces: an encoder holds some hundred bytes per token. Pieces end before a lone space,
#: where byte-level and word-piece vocabularies cut anyhow.
PIECE_CHARS = 1 << 20
_BATCH_CHARS = 1 << 20
_LOOK_BACK = 4096
_LONE_SPACE = re.compile(r"(?<=\S) (?=\S)")


@dataclass(frozen=True)
class TokenizerFile:
    """A tokenizer's content, so that executors need not find the file."""

    name: str
    data: bytes
    sha256: str
    eos_id: int | None


def open_tokenizer(settings: Publish) -> TokenizerFile | None:
    """The recipe's tokenizer, checked; None where it names none.

    Raises UsageError for a file that is missing or no tokenizer, or an eos id that its vocabulary does not have.
    """
    name = settings.tokenizer
    if name is None:
        return None
    try:
        with fsspec.open(name, "rb") as file:
            data: bytes = file.read()
    except Exception as error:
        cause = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"publish.tokenizer {name}: cannot be read ({cause})") from None
    try:
        tokenizer = Tokenizer.from_str(data.decode("utf-8"))
    except Exception as error:  # the library raises bare Exception
        raise UsageError(f"publish.tokenizer {name}: not a tokenizer.json ({' '.join(str(error).split())})") from None
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if not vocabulary:
        raise UsageError(f"publish.tokenizer {name}: its vocabulary is empty")
    eos_id = settings.eos_id
    if eos_id is None:
        eos_id = next((vocabulary[word] for word in EOS_NAMES if word in vocabulary), None)
        if eos_id is None and settings.tokenize:
            raise UsageError(f"publish.tokenizer {name}: no token ends a document by its name; set publish.eos_id")
    elif not 0 <= eos_id <= max(vocabulary.values()):
        raise UsageError(f"publish.eos_id {eos_id} is not in the vocabulary (0 to {max(vocabulary.values())})")
    return TokenizerFile(name, data, hashlib.sha256(data).hexdigest(), eos_id)


class Encoder:
    """A tokenizer at work in one process."""

    def __init__(self, file: TokenizerFile) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # Spark runs one task per core
        self._tokenizer = Tokenizer.from_str(file.data.decode("utf-8"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """One array of ids per text."""
        found: list[Ids] = []
        for batch in _batches(texts):
            if len(batch) == 1 and len(batch[0]) > PIECE_CHARS:
                found.append(np.concatenate([self._encode([piece])[0] for piece in pieces(batch[0])]))
            else:
                found.extend(self._encode(batch))
        return found

    def _encode(self, texts: list[str]) -> list[Ids]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]


def pieces(text: str) -> Iterator[str]:
    """Cuts a text into pieces of at most PIECE_CHARS that join to the text again."""
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = start + PIECE_CHARS
        for space in _LONE_SPACE.finditer(text, end - min(_LOOK_BACK, PIECE_CHARS // 2), end):
            end = space.start()
        yield text[start:end]
        start = end
    yield text[start:]


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    chars = 0
    for text in texts:
        if batch and chars + len(text) > _BATCH_CHARS:
            yield batch
            batch, chars = [], 0
        batch.append(text)
        chars += len(text)
    if batch:
        yield batch
