"""A checkpoint as Hugging Face reads models: safetensors, `config.json`, and the tokenizer.

Without QK-norm the model is a Llama, weight for weight; with it, it is a Qwen3, and is written as one. Reads any mesh's
checkpoint into one process: a parameter at a time is not needed below some 30 B in host memory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.filesystem import FileSystemReader

from trainer import checkpoint as checkpoints
from trainer.config import TrainConfig, model_config, stream_config
from trainer.errors import TrainUsageError
from trainer.model import ModelConfig, Transformer
from trainer.stream import read_manifest
from trainer.stream.tokens import BYTES, STORED, open_encoder
from trainer.train import read_config

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}

#: our names -> Hugging Face's; `{}` is the layer
_OUTSIDE = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}
_BLOCK = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
}


def export(run: Path, out: Path, *, dtype: str = "float32", step: int | None = None) -> dict[str, Any]:
    """Writes the newest complete checkpoint of `run`, or that of `step`, to `out`. What is there already is refused.

    Raises TrainUsageError for a step that has no checkpoint. Returns the `config.json`.
    """
    from safetensors.torch import save_file

    if dtype not in TYPES:
        raise TrainUsageError(f"dtype {dtype!r}: one of {', '.join(TYPES)}")
    if out.exists() and any(out.iterdir()):
        raise TrainUsageError(f"{out} is not empty: give a new folder")
    config = read_config(run)
    good = [c for c in checkpoints.find(run / "checkpoints")[0] if step is None or c.step == step]
    if not good:
        raise TrainUsageError(f"{run}: no complete checkpoint" + ("" if step is None else f" of step {step}"))
    stream = stream_config(config)
    tokenizer_known = config.data.tokenizer != STORED
    encoder = open_encoder(stream.tokenizer, stream.eos_id, [] if tokenizer_known else _manifests(config))
    model = model_config(config, encoder.vocabulary)
    weights = {theirs(name): t.to(TYPES[dtype]) for name, t in read_weights(good[0], model).items()}
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    described = describe(model, config.data.seq_len, encoder.eos_id, dtype)
    (out / "config.json").write_text(json.dumps(described, indent=2), "utf-8")
    if config.data.tokenizer == BYTES:
        (out / "tokenizer.json").write_text(json.dumps(byte_tokenizer(encoder.eos_id)), "utf-8")
    elif tokenizer_known:
        with fsspec.open(config.data.tokenizer, "rb") as file:
            (out / "tokenizer.json").write_bytes(file.read())
    return described


def _manifests(config: TrainConfig) -> list[Any]:
    return [read_manifest(source.uri) for source in stream_config(config).sources]


def read_weights(checkpoint: checkpoints.Checkpoint, model: ModelConfig) -> dict[str, Tensor]:
    """Whole parameters by our names. Raises TrainError where the checkpoint is of another model."""
    reader = FileSystemReader(checkpoint.folder)
    metadata = reader.read_metadata()
    with torch.device("meta"):
        named = dict(Transformer(model).named_parameters())
    entries = metadata.state_dict_metadata
    targets = {
        f"model.{name}": torch.empty(parameter.shape, dtype=entries[f"model.{name}"].properties.dtype)  # type: ignore[union-attr]
        for name, parameter in named.items()
        if f"model.{name}" in entries
    }
    wanted = {f"model.{name}": tuple(parameter.shape) for name, parameter in named.items()}
    kinds = {n: (shape, str(targets[n].dtype) if n in targets else "float32") for n, shape in wanted.items()}
    checkpoints.compare(checkpoint.folder, metadata, kinds, optimizer=False)
    state_dict_loader.load(dict(targets), storage_reader=reader, no_dist=True)
    return {name.removeprefix("model."): tensor for name, tensor in targets.items()}


def theirs(name: str) -> str:
    """`blocks.3.attention.query.weight` -> `model.layers.3.self_attn.q_proj.weight`"""
    if name in _OUTSIDE:
        return _OUTSIDE[name]
    _, layer, rest = name.split(".", 2)
    return f"model.layers.{layer}.{_BLOCK[rest.removesuffix('.weight')]}.weight"


def describe(model: ModelConfig, seq_len: int, eos_id: int, dtype: str) -> dict[str, Any]:
    """`config.json` in the form that transformers 4 and 5 both read."""
    kind = ("Qwen3ForCausalLM", "qwen3") if model.qk_norm else ("LlamaForCausalLM", "llama")
    return {
        "architectures": [kind[0]],
        "model_type": kind[1],
        "vocab_size": model.vocab_size,
        "hidden_size": model.width,
        "intermediate_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.key_value_heads,
        "head_dim": model.head_width,
        "hidden_act": "silu",
        "rms_norm_eps": model.norm_epsilon,
        "rope_theta": model.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta},
        "max_position_embeddings": seq_len,
        "tie_word_embeddings": model.tied,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": eos_id,
        "torch_dtype": dtype,
    }


def byte_tokenizer(eos_id: int) -> dict[str, Any]:
    """A tokenizer.json whose ids are the bytes themselves; the end of a document is `<|endoftext|>`."""
    # GPT-2's alphabet: printable bytes are their own character, the others come after them from 256 on
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocab={letters[byte]: byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    if eos_id == 256:
        tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    tree: dict[str, Any] = json.loads(tokenizer.to_str())
    return tree
