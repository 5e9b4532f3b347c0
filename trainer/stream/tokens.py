"""Texts to token ids: a `tokenizer.json`, bytes, or the ids that the shards store.

Ids are int32: 31 bits, no vocabulary comes near. A document here is its ids *without* the end-of-document id, which the
packer puts behind its last one; so n ids give n inputs and n targets.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fsspec
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from trainer.stream.errors import ContentFault, StreamError, StreamUsageError, one_line
from trainer.stream.manifest import Manifest

Array = npt.NDArray[Any]
BYTES = "bytes"
STORED = "stored"
MOST_ID = (1 << 31) - 1
#: As in publishing, so that ids made here equal ids stored there: longer texts are encoded in pieces that end before a
#: lone space, where byte-level and word-piece vocabularies cut anyhow.
PIECE_CHARS = 1 << 20
_LOOK_BACK = 4096
_LONE_SPACE = re.compile(r"(?<=\S) (?=\S)")
#: Names that vocabularies give to the end of a document, most telling first.
EOS_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<|end|>")


@dataclass
class Encoder:
    """Turns a column's values into documents. This one takes them as they are: stored ids."""

    name: str
    sha256: str
    eos_id: int
    column: str = "tokens"
    #: whether encoding is worth a thread of its own
    heavy: bool = False
    #: how many ids there are, from 0 on; None where nobody said (stored ids)
    vocabulary: int | None = None

    def encode(self, values: Sequence[Array]) -> list[Array]:
        """One array of ids per document, int32 or a narrower unsigned type, from its slice of the column's values."""
        return list(values)

    def decode(self, ids: list[int]) -> str | None:
        """The ids' text; None where this encoder does not know it."""
        return None


class ByteEncoder(Encoder):
    """256 bytes and an end of document: needs no file and knows every language."""

    def __init__(self, eos_id: int = 256) -> None:
        super().__init__(BYTES, BYTES, eos_id, "text", vocabulary=max(255, eos_id) + 1)

    def decode(self, ids: list[int]) -> str | None:
        return bytes(ids).decode("utf-8", "replace")


class LengthEncoder(Encoder):
    """Documents of the stored length that hold nothing: what a plan is made with."""

    def encode(self, values: Sequence[Array]) -> list[Array]:
        nothing = np.zeros(1, np.int32)
        return [np.broadcast_to(nothing, (int(value[0]),)) for value in values]


class FileEncoder(Encoder):
    """A `tokenizer.json`. The library's own threads stay off: the loader's threads call it side by side."""

    def __init__(self, name: str, data: bytes, eos_id: int | None) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            self._tokenizer = Tokenizer.from_str(data.decode("utf-8"))
        except Exception as error:  # the library raises bare Exception
            raise StreamUsageError(f"{name}: not a tokenizer.json ({' '.join(str(error).split())})") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        found = next((vocabulary[word] for word in EOS_NAMES if word in vocabulary), None) if eos_id is None else eos_id
        if found is None:
            raise StreamUsageError(f"{name}: no token ends a document by its name; set eos_id")
        largest = max(vocabulary.values(), default=-1)
        if not 0 <= found <= largest:
            raise StreamUsageError(f"eos_id {found} is not in the vocabulary of {name} (0 to {largest})")
        super().__init__(name, hashlib.sha256(data).hexdigest(), found, "text", heavy=True, vocabulary=largest + 1)

    def encode(self, values: Sequence[Array]) -> list[Array]:
        texts = [str(value.data, "utf-8", "replace") for value in values]
        if max(map(len, texts), default=0) <= PIECE_CHARS:
            return self._encode(texts)
        return [
            np.concatenate([self._encode([piece])[0] for piece in pieces(text)])
            if len(text) > PIECE_CHARS
            else self._encode([text])[0]
            for text in texts
        ]

    def decode(self, ids: list[int]) -> str | None:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def _encode(self, texts: list[str]) -> list[Array]:
        try:
            encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except Exception as error:  # the library raises bare Exception
            raise StreamError(
                f"{self.name}: cannot encode a text ({one_line(error)}); take another tokenizer"
            ) from None
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]


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


def open_encoder(tokenizer: str, eos_id: int | None, manifests: Sequence[Manifest]) -> Encoder:
    """`bytes`, `stored`, or the address of a tokenizer.json.

    Raises StreamUsageError for a tokenizer that cannot be had, or stored tokens that are not of one tokenizer.
    """
    if eos_id is not None and not 0 <= eos_id <= MOST_ID:
        raise StreamUsageError(f"eos_id {eos_id}: ids are 0 to {MOST_ID:,}")
    if tokenizer == BYTES:
        if eos_id is not None and eos_id < 256:
            raise StreamUsageError(f"eos_id {eos_id} is a byte of text; with `bytes` take 256 (the default) or above")
        return ByteEncoder(256 if eos_id is None else eos_id)
    if tokenizer == STORED:
        sha256, eos = _stored(manifests, eos_id)
        return Encoder(STORED, sha256, eos)
    try:
        with fsspec.open(tokenizer, "rb") as file:
            data: bytes = file.read()
    except Exception as error:
        cause = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise StreamUsageError(f"tokenizer {tokenizer}: cannot be read ({cause})") from None
    if eos_id is None:  # what the runs were published with, where it is this tokenizer
        sha256 = hashlib.sha256(data).hexdigest()
        eos_id = next((m.eos_id for m in manifests if m.tokenizer_sha256 == sha256 and m.eos_id is not None), None)
    return FileEncoder(tokenizer, data, eos_id)


def length_encoder(manifests: Sequence[Manifest], encoder: Encoder) -> LengthEncoder | None:
    """Stands in for an encoder where only lengths matter; None where the shards do not store them."""
    if all(m.tokenizer_sha256 == encoder.sha256 for m in manifests):
        return LengthEncoder("lengths", encoder.sha256, encoder.eos_id, "n_tokens")
    return None


def _stored(manifests: Sequence[Manifest], eos_id: int | None) -> tuple[str, int]:
    names = {(m.tokenizer_sha256, m.eos_id if eos_id is None else eos_id): m for m in manifests}
    if len(names) > 1:
        told = " and ".join(f"{m.folder} by {m.tokenizer} (eos {m.eos_id})" for m in names.values())
        raise StreamUsageError(f"stored tokens of different tokenizers: {told}; curate them with one tokenizer")
    (sha256, eos), manifest = next(iter(names.items()))
    if sha256 is None:
        raise StreamUsageError(
            f"{manifest.folder} stores no tokens; curate with publish.tokenizer, or give a tokenizer"
        )
    if eos is not None and eos > MOST_ID:
        raise StreamUsageError(f"{manifest.folder} ends documents with id {eos}: ids are 0 to {MOST_ID:,}; set eos_id")
    if eos is None:
        raise StreamUsageError(f"{manifest.folder} does not say which id ends a document; set eos_id")
    return sha256, eos


def check_ids(values: Array, largest: int = MOST_ID) -> Array:
    """uint32 as int32, where they fit."""
    if len(values) and int(values.max()) > largest:
        raise ContentFault(f"a token id of {int(values.max()):,}")
    return values.view(np.int32)
