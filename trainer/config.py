"""What a training run is: a TOML file and flags, checked once, before anything is read.

Each section is a frozen dataclass; `parallel` and `optimizer` are those of the parts they set. Unknown keys and
impossible values end in one line with the nearest name that exists.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from trainer.errors import TrainUsageError
from trainer.model import SIZES, ModelConfig
from trainer.optim import OptimizerConfig
from trainer.parallel import ParallelConfig
from trainer.stream import StreamConfig, sources_of

T = TypeVar("T")


@dataclass(frozen=True)
class Model:
    """A size by name, and what differs from it."""

    size: str = "15m"
    #: of stored tokens, whose vocabulary no one can ask; else the tokenizer's
    vocab_size: int | None = None
    width: int | None = None
    layers: int | None = None
    heads: int | None = None
    key_value_heads: int | None = None
    hidden: int | None = None
    rope_theta: float | None = None
    qk_norm: bool | None = None
    tied: bool | None = None
    norm_epsilon: float | None = None


@dataclass(frozen=True)
class Data:
    #: curated runs, each may end in @WEIGHT
    dir: tuple[str, ...] = ()
    seq_len: int = 512
    #: rows of a step over all ranks
    batch_size: int = 16
    #: forward and backward passes per step
    accumulation: int = 1
    mode: str = "packed"
    tokenizer: str = "bytes"
    eos_id: int | None = None
    weights_by: str = "tokens"
    lanes: int | None = None
    #: None: without end
    epochs: int | None = None
    window: int = 4
    threads: int = 2
    prefetch: int = 2
    #: record ids; may change between starts
    exclude: tuple[str, ...] = ()
    #: steps between the states that `batch` and `replay` start from
    log_every: int = 100


@dataclass(frozen=True)
class Run:
    #: everything the run leaves; the same command goes on from what is there
    out: str = "trained"
    steps: int = 200
    seed: int = 0
    #: cpu or cuda; None: cuda where there is one
    device: str | None = None
    #: warmup as a share of the run, where `optimizer.warmup_tokens` is 0
    warmup: float = 0.02
    #: seconds that a collective, and a step, may take; the first step, which may compile, ten times as long
    timeout: float = 300.0


@dataclass(frozen=True)
class Checkpoints:
    #: steps; the last step is saved anyhow
    every: int = 100
    keep: int = 3


@dataclass(frozen=True)
class Faults:
    #: a loss or norm so many standard deviations above the mean of the last `window` steps is a spike; 0: off
    sigma: float = 6.0
    window: int = 128
    #: bad steps within `window` steps that rewind to the last good checkpoint
    patience: int = 3
    #: rewinds of a run before it is given up
    rewinds: int = 3


@dataclass(frozen=True)
class Health:
    #: steps between lines on the screen; `health.jsonl` has every step
    every: int = 10
    tensorboard: bool = False


@dataclass(frozen=True)
class Validation:
    #: curated runs that are not trained on
    dir: tuple[str, ...] = ()
    #: steps between validations; the last step is validated anyhow
    every: int = 100
    #: batches, always the same ones
    batches: int = 8


@dataclass(frozen=True)
class TrainConfig:
    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    run: Run = field(default_factory=Run)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    faults: Faults = field(default_factory=Faults)
    health: Health = field(default_factory=Health)
    validation: Validation = field(default_factory=Validation)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON: tuples as lists."""
        tree: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return tree


#: What each number must at least be, and each word may be.
_LEAST: dict[str, float] = {
    **dict.fromkeys(("data.seq_len", "data.batch_size", "data.accumulation", "data.log_every"), 1),
    **dict.fromkeys(("run.steps", "checkpoints.every", "checkpoints.keep", "health.every", "faults.patience"), 1),
    **dict.fromkeys(("validation.every", "validation.batches"), 1),
    **dict.fromkeys(("run.warmup", "faults.sigma", "faults.rewinds", "optimizer.warmup_tokens"), 0),
    **dict.fromkeys(("optimizer.learning_rate", "optimizer.weight_decay", "optimizer.final", "optimizer.decay"), 0),
    "faults.window": 8,
    "run.timeout": 1,
}
_WORDS: dict[str, tuple[str, ...]] = {
    "model.size": tuple(SIZES),
    "optimizer.name": ("adamw", "muon"),
    "optimizer.schedule": ("cosine", "wsd"),
    "run.device": ("cpu", "cuda"),
}


def load(file: str | None, flags: Mapping[str, Any], overrides: Sequence[str] = ()) -> TrainConfig:
    """The configuration of `file` (TOML, or none), over it `flags` (dotted key -> value, None: not given), over both
    `key=value` overrides. Raises TrainUsageError, in one line, for anything that is not a valid one.
    """
    tree = _read(file) if file else {}
    for key, value in flags.items():
        if value is not None:
            _put(tree, key, value)
    for item in overrides:
        key, equals, text = item.partition("=")
        if not equals:
            raise TrainUsageError(f"--set {item}: write key=value, for example --set optimizer.name=muon")
        _put(tree, key.strip(), _value(text.strip()))
    return from_tree(tree)


def from_tree(tree: Mapping[str, Any]) -> TrainConfig:
    config = _section(TrainConfig, tree, "")
    for key, least in _LEAST.items():
        value = _get(config, key)
        if value is not None and not (math.isfinite(value) and value >= least):
            raise TrainUsageError(f"{key} {value}: at least {least:g}")
    for key, words in _WORDS.items():
        word = _get(config, key)
        if word is not None and word not in words:
            raise TrainUsageError(f"{key} {word!r}: one of {', '.join(words)}")
    return config


def _section(kind: type[T], tree: Any, path: str) -> T:
    if not isinstance(tree, Mapping):
        raise TrainUsageError(f"{path}: has keys of its own; set one of them, as in --set {path}.KEY=VALUE")
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for name, value in tree.items():
        where = f"{path}.{name}" if path else name
        if name not in hints:
            raise TrainUsageError(f"unknown key {where}{nearest(name, hints)}")
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            given[name] = _section(hint, value, where)  # type: ignore[arg-type]
            continue
        try:
            given[name] = TypeAdapter(hint).validate_python(value)
        except ValidationError as error:
            hint_text = 'give a list, as in ["a"]' if isinstance(value, str) and "tuple" in str(hint) else None
            raise TrainUsageError(f"{where} {value!r}: {hint_text or error.errors()[0]['msg']}") from None
    return kind(**given)


def nearest(word: str, known: Iterable[str]) -> str:
    """' (nearest: x)' for an error message, empty where nothing is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (nearest: {close[0]})" if close else ""


def _read(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TrainUsageError(f"configuration {file}: cannot be read ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise TrainUsageError(f"configuration {file}: not TOML: {error}") from None


def _value(text: str) -> Any:
    """TOML where it parses, else the bare word; `none` is no value."""
    if text == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for name in path:
        node = tree.setdefault(name, {})
        if not isinstance(node, dict):
            raise TrainUsageError(f"{key}: {name} holds a value, not a table")
        tree = node
    tree[last] = value


def _get(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = getattr(config, name)
    return config


# ----------------------------------------------------------------------------------------- what the parts are told


def stream_config(config: TrainConfig) -> StreamConfig:
    if not config.data.dir:
        raise TrainUsageError("no data: give --data DIR, the folder of a curated run")
    data = config.data
    return StreamConfig(
        sources_of(data.dir),
        data.seq_len,
        data.batch_size,
        mode=data.mode,
        lanes=data.lanes,
        seed=config.run.seed,
        epochs=data.epochs,
        tokenizer=data.tokenizer,
        eos_id=data.eos_id,
        weights_by=data.weights_by,
        window=data.window,
        threads=data.threads,
        prefetch=data.prefetch,
        exclude=data.exclude,
        log_dir=f"{config.run.out}/states",
        log_every=data.log_every,
    )


def validation_config(config: TrainConfig) -> StreamConfig:
    """Other data in the same shape; nothing of it is logged."""
    stream = stream_config(config)
    return dataclasses.replace(
        stream, sources=sources_of(config.validation.dir), log_dir=None, epochs=None, exclude=(), threads=0, seed=0
    )


def model_config(config: TrainConfig, vocabulary: int | None) -> ModelConfig:
    """`vocabulary`: ids of the tokenizer, None where only `model.vocab_size` can tell."""
    chosen = {k: v for k, v in dataclasses.asdict(config.model).items() if k != "size" and v is not None}
    if "vocab_size" in chosen and vocabulary is not None and chosen["vocab_size"] < vocabulary:
        raise TrainUsageError(
            f"model.vocab_size {chosen['vocab_size']} is too small for the tokenizer's {vocabulary} ids: leave it out"
        )
    model = dataclasses.replace(SIZES[config.model.size], **chosen)
    if "vocab_size" in chosen:
        return model
    if vocabulary is None:
        raise TrainUsageError("stored tokens do not say how many ids there are: set model.vocab_size")
    return model.with_vocabulary(vocabulary)  # of no mesh: a run keeps its shapes wherever it goes on


def optimizer_config(config: TrainConfig) -> OptimizerConfig:
    """With the schedule's length in tokens: the run's, at most what its positions can hold."""
    given = config.optimizer
    total = given.total_tokens or config.run.steps * config.data.batch_size * config.data.seq_len
    return dataclasses.replace(
        given, total_tokens=total, warmup_tokens=given.warmup_tokens or int(config.run.warmup * total)
    )
