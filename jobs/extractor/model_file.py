"""The model as a file: the same model gives the same bytes, and the file says what made it."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.extract.context_features import CONTEXT
from pipeline.extract.features import FEATURES
from pipeline.extract.model import Model
from pipeline.extract.trees import Trees

PROJECT = Path(__file__).resolve().parents[2]
#: What a model depends on besides the pages
SOURCES = ("jobs/extractor/*.py", "jobs/train_extractor.py", "pipeline/extract/*.py", "pipeline/crawl/charset.py")
#: Not part of a model: how its answers become text
_NOT_SOURCES = frozenset({"gristmill.py"})
_EARLIEST = (1980, 1, 1, 0, 0, 0)


def to_bytes(model: Model, about: dict[str, Any]) -> bytes:
    """A .npz file, stored without compression and without dates: numpy's own holds the time of day."""
    about = {**about, "features": FEATURES, "context": CONTEXT}
    used = np.flatnonzero(model.tokens.keys)
    order = used[np.argsort(model.tokens.keys[used])]
    arrays = {
        "about": np.frombuffer(json.dumps(about, indent=1, sort_keys=True).encode(), np.uint8),
        "token_hash": model.tokens.keys[order].astype(np.uint32),
        "token_score": model.tokens.values[order],
        **_arrays("first", model.first),
        **_arrays("second", model.second),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", _EARLIEST)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            content = io.BytesIO()
            np.lib.format.write_array(content, array, version=(1, 0), allow_pickle=False)
            archive.writestr(entry, content.getvalue())
    return buffer.getvalue()


def _arrays(stage: str, trees: Trees) -> dict[str, Any]:
    names = ("feature", "threshold", "mask", "start", "leaf", "stop")
    arrays = {f"{stage}_{name}": getattr(trees, name) for name in names}
    return {**arrays, f"{stage}_base": np.array([trees.base, trees.floor], np.float32)}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def code_digest() -> str:
    """One hash over the sources that a model depends on."""
    digests = hashlib.sha256()
    for path in sorted({path for pattern in SOURCES for path in PROJECT.glob(pattern)}):
        if path.name not in _NOT_SOURCES:
            digests.update(f"{path.relative_to(PROJECT).as_posix()} {digest(path)}\n".encode())
    return digests.hexdigest()
