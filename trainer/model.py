"""The model: a decoder of RMSNorm, rotary positions, grouped-query attention and SwiGLU, as in Llama.

Shapes: b rows, T positions, d width, h query heads, k key-value heads, e width of a head. Knows nothing of how it is
split: `parallel.py` shards its parameters and its stages from outside, `initial.py` fills them. A stage of a pipeline
is this module with some of its blocks, and with the embedding or the head only where it is the first or the last.
Everything takes the parameters' type: float64 goes through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - its name everywhere
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from trainer.initial import initialise as initialise
from trainer.loss import cross_entropy_sum


@dataclass(frozen=True)
class ModelConfig:
    vocab_size: int = 320
    width: int = 128
    layers: int = 4
    heads: int = 4
    key_value_heads: int = 2
    #: of the feed-forward
    hidden: int = 384
    rope_theta: float = 10_000.0
    #: RMSNorm of each head's query and key: steadier at high learning rates, but no longer a Llama for export
    qk_norm: bool = False
    #: one matrix for embedding and head
    tied: bool = False
    norm_epsilon: float = 1e-5

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    def with_vocabulary(self, size: int, multiple: int = 64) -> ModelConfig:
        """For a tokenizer of `size` ids, rounded up so that it splits evenly and multiplies fast."""
        return replace(self, vocab_size=-(-size // multiple) * multiple)


#: Parameters without embeddings: 0.8 M, 15 M, 85 M, 0.97 B, 7.0 B; the last three as GPT-2, Llama 3.2 1B, Llama 3 8B.
SIZES: dict[str, ModelConfig] = {
    "1m": ModelConfig(),
    "15m": ModelConfig(width=384, layers=8, heads=6, key_value_heads=2, hidden=1280),
    "124m": ModelConfig(50_304, width=768, layers=12, heads=12, key_value_heads=12, hidden=2048, tied=True),
    "1b": ModelConfig(128_256, 2048, 16, 32, 8, 8192, rope_theta=500_000.0, tied=True),
    "8b": ModelConfig(128_256, 4096, 32, 32, 8, 14_336, rope_theta=500_000.0),
}


class Transformer(nn.Module):
    """Tokens to hidden states, or to the summed loss where targets are given.

    `layers`, `first` and `last` make it one stage of a pipeline. Names do not depend on the stage: `embedding.weight`,
    `blocks.3.attention.query.weight`, `norm.weight`, `head.weight`. A tied model has no `head.weight`; its last stage
    holds `embedding.weight` too.
    """

    def __init__(
        self, config: ModelConfig, layers: range | None = None, *, first: bool = True, last: bool = True
    ) -> None:
        super().__init__()
        self.config, self.first, self.last = config, first, last
        chosen = range(config.layers) if layers is None else layers
        self.embedding = nn.Embedding(config.vocab_size, config.width) if first or (last and config.tied) else None
        self.blocks = nn.ModuleDict({str(layer): Block(config) for layer in chosen})
        self.norm = nn.RMSNorm(config.width, eps=config.norm_epsilon) if last else None
        self.head = Head(config) if last else None
        #: names of parameters that are a copy of another stage's
        self.borrowed = {"embedding.weight"} if config.tied and last and not first else set()

    def layers(self) -> list[Block]:
        return [cast(Block, block) for block in self.blocks.values()]

    def forward(self, inputs: Tensor, positions: Tensor, document_ids: Tensor, targets: Tensor | None = None) -> Tensor:
        """`inputs` [b, T] token ids, or [b, T, d] from the stage before; `positions`, `document_ids`, `targets` [b, T].

        Returns [b, T, d] (normalised in the last stage), or the last stage's loss summed over valid targets.
        """
        if self.first:
            assert self.embedding is not None
            hidden: Tensor = self.embedding(inputs)
        else:
            hidden = inputs
        mask = document_mask(document_ids)
        rotation = rotary(positions, self.config, torch.promote_types(hidden.dtype, torch.float32))
        for block in self.layers():
            hidden = block(hidden, rotation, mask)
        if self.norm is None or self.head is None:
            return hidden
        normalised: Tensor = self.norm(hidden)
        if targets is None:
            return normalised
        tied = self.embedding.weight if self.config.tied and self.embedding is not None else None
        loss: Tensor = self.head(normalised, targets, tied)
        return loss


class Block(nn.Module):
    """Attention and feed-forward, each added to the stream. `call` is what AC and compile wrap: hooks stay outside."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=config.norm_epsilon)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.width, eps=config.norm_epsilon)
        self.feed_forward = FeedForward(config)
        self.call: Callable[..., Tensor] = self.plain

    def forward(self, hidden: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | BlockMask) -> Tensor:
        return self.call(hidden, rotation, mask)

    def plain(self, hidden: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | BlockMask) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden), rotation, mask)
        out: Tensor = hidden + self.feed_forward(self.feed_forward_norm(hidden))
        return out

    def recompute(self, mode: str) -> None:
        """Activation checkpointing: `full` keeps a block's input alone, `selective` also what is dear to compute."""
        if mode == "full":
            self.call = partial(checkpoint, self.plain, use_reentrant=False)
        elif mode == "selective":
            contexts = partial(create_selective_checkpoint_contexts, _keep_the_dear)
            self.call = partial(checkpoint, self.plain, use_reentrant=False, context_fn=contexts)

    def compile_call(self) -> None:
        self.call = torch.compile(self.call)


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, self.head_width = config.width, config.head_width
        self.query = nn.Linear(width, config.heads * self.head_width, bias=False)
        self.key = nn.Linear(width, config.key_value_heads * self.head_width, bias=False)
        self.value = nn.Linear(width, config.key_value_heads * self.head_width, bias=False)
        self.output = nn.Linear(config.heads * self.head_width, width, bias=False)
        self.query_norm = nn.RMSNorm(self.head_width, eps=config.norm_epsilon) if config.qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(self.head_width, eps=config.norm_epsilon) if config.qk_norm else nn.Identity()

    def forward(self, hidden: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | BlockMask) -> Tensor:
        # a tensor-parallel rank has h / tp heads: their number is read off, not taken from the configuration
        query, key, value = (p(hidden).unflatten(-1, (-1, self.head_width)) for p in (self.query, self.key, self.value))
        query, key = rotate(self.query_norm(query), rotation), rotate(self.key_norm(key), rotation)
        mixed = attend(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask)
        out: Tensor = self.output(mixed.transpose(1, 2).flatten(-2))
        return out


class FeedForward(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.down(F.silu(self.gate(hidden)) * self.up(hidden))
        return out


class Head(nn.Module):
    """The last matrix and the loss in one, so that FSDP gathers the matrix for the loss and no logits leave it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = None if config.tied else nn.Parameter(torch.empty(config.vocab_size, config.width))

    def forward(self, hidden: Tensor, targets: Tensor, tied: Tensor | None) -> Tensor:
        weight = self.weight if tied is None else tied
        assert weight is not None
        return cross_entropy_sum(hidden, weight, targets)


def rotary(positions: Tensor, config: ModelConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine [b, T, 1, e / 2] of each position's angles (RoFormer, arXiv 2104.09864), at least float32."""
    steps = torch.arange(0, config.head_width, 2, device=positions.device, dtype=dtype)
    frequencies = config.rope_theta ** (-steps / config.head_width)
    angles = positions[..., None, None].to(dtype) * frequencies
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turns the pairs (i, i + e / 2) of x [b, T, heads, e], as Hugging Face's Llama pairs them."""
    cosine, sine = rotation
    low, high = x.to(cosine.dtype).chunk(2, dim=-1)
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], dim=-1).to(x.dtype)


def document_mask(document_ids: Tensor) -> Tensor | BlockMask:
    """What a position sees: earlier ones of its own document. Padding (-1) sees padding, so that no row is empty.

    CPU: bool [b, 1, T, T] for SDPA, as no kernel there trains with less (FlexAttention and varlen have no backward).
    CUDA: a block mask for FlexAttention, which skips the blocks between documents.
    """
    if document_ids.is_cuda:

        def visible(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query >= key) & (document_ids[row, query] == document_ids[row, key])

        rows, length = document_ids.shape
        return create_block_mask(visible, rows, None, length, length, device=document_ids.device)
    same = document_ids[:, :, None] == document_ids[:, None, :]
    return same.tril().unsqueeze(1)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | BlockMask) -> Tensor:
    """Grouped-query attention [b, h, T, e]; key and value [b, k, T, e]."""
    if isinstance(mask, BlockMask):
        out: Tensor = _compiled_flex()(query, key, value, block_mask=mask, enable_gqa=True)
        return out
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)


@cache
def _compiled_flex() -> Callable[..., Any]:
    """Uncompiled, FlexAttention materialises every score."""
    return torch.compile(flex_attention, dynamic=False)


_ops = torch.ops.aten
_DEAR = {
    _ops.mm.default,
    _ops._scaled_dot_product_flash_attention_for_cpu.default,
    _ops._scaled_dot_product_flash_attention.default,
    _ops._scaled_dot_product_efficient_attention.default,
    _ops._scaled_dot_product_cudnn_attention.default,
    torch.ops.higher_order.flex_attention,
}


def _keep_the_dear(_context: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    """Selective: matrix products and attention are kept, the cheap rest between them is computed again."""
    return CheckpointPolicy.MUST_SAVE if op in _DEAR else CheckpointPolicy.PREFER_RECOMPUTE
