"""The exported files against Llama written down again, from its published equations and Hugging Face's names alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from tests.trainer import running
from trainer import checkpoint as checkpoints
from trainer.errors import TrainUsageError
from trainer.export_model import export
from trainer.ranks import Ranks
from trainer.train import build, train


def norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


def rotated(x: Tensor, theta: float) -> Tensor:
    """Of [heads, T, d], halves as pairs, as Hugging Face's `rotate_half` has it."""
    half = x.shape[-1] // 2
    wide = torch.float64
    frequencies = theta ** (-torch.arange(half, dtype=wide) / half)
    angles = torch.outer(torch.arange(x.shape[-2], dtype=wide), frequencies).to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()), -1)


def llama(weights: dict[str, Tensor], config: dict[str, Any], tokens: Tensor) -> Tensor:
    """Logits [T, vocabulary]."""
    heads, kv, width = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    epsilon, theta = config["rms_norm_eps"], config["rope_theta"]
    x = weights["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        own = {n.removeprefix(f"model.layers.{layer}."): t for n, t in weights.items()}
        y = norm(x, own["input_layernorm.weight"], epsilon)
        query, key, value = (
            linear(y, own[f"self_attn.{name}_proj.weight"]).view(len(tokens), n, width).transpose(0, 1)
            for name, n in (("q", heads), ("k", kv), ("v", kv))
        )
        if config["model_type"] == "qwen3":
            query = norm(query, own["self_attn.q_norm.weight"], epsilon)
            key = norm(key, own["self_attn.k_norm.weight"], epsilon)
        key, value = (t.repeat_interleave(heads // kv, 0) for t in (rotated(key, theta), value))
        y = scaled_dot_product_attention(rotated(query, theta), key, value, is_causal=True)
        x = x + linear(y.transpose(0, 1).reshape(len(tokens), -1), own["self_attn.o_proj.weight"])
        y = norm(x, own["post_attention_layernorm.weight"], epsilon)
        gate, up = linear(y, own["mlp.gate_proj.weight"]), linear(y, own["mlp.up_proj.weight"])
        x = x + linear(silu(gate) * up, own["mlp.down_proj.weight"])
    head = weights["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"]
    return linear(norm(x, weights["model.norm.weight"], epsilon), head)


@pytest.mark.parametrize("model", [{"key_value_heads": 1}, {"tied": True}, {"qk_norm": True, "tied": False}])
def test_exported_logits_are_the_models(model: dict[str, Any], tmp_path: Path) -> None:
    data, out = running.write_data(tmp_path / "data", 100), tmp_path / "run"
    settings = running.config(data, out, steps=6, model=model, parallel={"precision": "fp64"})
    train(settings)
    config = export(out, tmp_path / "hf", dtype="float64")
    assert json.loads((tmp_path / "hf" / "config.json").read_text()) == config
    weights = load_file(tmp_path / "hf" / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(tmp_path / "hf" / "tokenizer.json"))
    text = "the mill grinds grain, größer 麦"
    ids = tokenizer.encode(text).ids
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text
    session = build(settings, Ranks(), log=False)
    checkpoints.load(checkpoints.find(out / "checkpoints")[0][0], session.trainee, Ranks())
    tokens = torch.tensor([ids])
    part = session.trainee.parts[0]
    with torch.no_grad():
        hidden = part(tokens, torch.arange(len(ids))[None], torch.zeros_like(tokens))[0]
        head = dict(session.trainee.named_parameters())
        ours = linear(hidden, head.get("head.weight", head["embedding.weight"]))
    torch.testing.assert_close(llama(weights, config, tokens[0]), ours, rtol=1e-9, atol=1e-9)
    with pytest.raises(TrainUsageError, match="is not empty"):
        export(out, tmp_path / "hf", dtype="float64")
