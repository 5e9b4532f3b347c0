"""What curated runs look like as training batches: lengths, mixture, packing, speed, shuffle."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import math
from typing import TYPE_CHECKING, Any

from pipeline.errors import GristmillError, UsageError
from pipeline.report.numbers import count, share, table

if TYPE_CHECKING:
    from trainer.stream import StreamConfig
    from trainer.survey import Survey


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", nargs="+", metavar="DATA", help="runs (local, s3://, https://), each may end in @WEIGHT"
    )
    add_stream_arguments(parser)
    parser.add_argument(
        "--tokens-per-second", type=float, metavar="N", help="what training takes: how many cores feed it"
    )
    parser.add_argument(
        "--train-tokens", type=float, metavar="N", help="length of the training: how often each run is seen"
    )
    parser.add_argument("--verify", action="store_true", help="only check every file against its sha256")
    parser.add_argument("--json", action="store_true", help="print every figure as JSON instead")


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    """What `inspect` and `batch` say about the stream."""
    parser.add_argument("--seq-len", type=int, default=2048, metavar="T", help="positions per row (default 2048)")
    parser.add_argument("--batch-size", type=int, default=64, metavar="B", help="rows per step (default 64)")
    parser.add_argument("--mode", default="packed", help="packed (default), concat or bucketed")
    parser.add_argument("--tokenizer", default="bytes", help="a tokenizer.json, `stored`, or `bytes` (default)")
    parser.add_argument(
        "--eos-id", type=int, metavar="ID", help="the id that ends a document (default: the vocabulary's)"
    )
    parser.add_argument("--weights-by", default="tokens", help="what weights count: tokens (default) or documents")
    parser.add_argument(
        "--lanes", type=int, metavar="L", help="default: the largest power of two up to 64 that divides B"
    )
    parser.add_argument("--seed", type=int, default=0)


def stream_config(args: argparse.Namespace, data: list[str]) -> StreamConfig:
    from trainer.stream import StreamConfig, sources_of

    names = ("seq_len", "batch_size", "mode", "tokenizer", "eos_id", "weights_by", "lanes", "seed")
    return StreamConfig(sources_of(data), **{name: getattr(args, name) for name in names})


def run(args: argparse.Namespace) -> int:
    need_torch()
    from trainer.stream import Loader
    from trainer.survey import survey, verify

    for option, value in (("tokens-per-second", args.tokens_per_second), ("train-tokens", args.train_tokens)):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"--{option} {value}: a number above 0")
    config = stream_config(args, args.data)
    with plain_errors():
        if args.verify:
            loader = Loader(config)
            wrong = verify(loader)
            files = sum(len(manifest.files) for manifest in loader.manifests)
            if wrong:
                raise GristmillError(
                    f"{len(wrong)} of {files} files are not what the manifest says: {', '.join(wrong[:3])}"
                )
            print(f"{files} files are what their manifests say")
            return 0
        seen = survey(config, None if args.train_tokens is None else int(args.train_tokens))
    print(json.dumps(_tree(seen), indent=2) if args.json else as_text(seen, args.tokens_per_second))
    return 0


def need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise UsageError("needs torch: .venv/bin/pip install -c infra/constraints.txt -e '.[train]'")


class plain_errors:  # noqa: N801 - reads as a verb
    """The trainer's errors as those of the command: one line, and its exit status."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        from trainer.errors import TrainError, TrainUsageError
        from trainer.stream import StreamError, StreamUsageError

        if isinstance(error, StreamUsageError | TrainUsageError):
            raise UsageError(str(error)) from error
        if isinstance(error, StreamError | TrainError):
            raise GristmillError(str(error)) from error


def _tree(seen: Survey) -> dict[str, Any]:
    tree = dataclasses.asdict(seen)
    for mode, use in seen.modes.items():
        tree["modes"][mode] |= {"masked": use.masked, "filled": use.filled}
    return tree


def as_text(seen: Survey, wanted: float | None) -> str:
    documents = sum(d for d, _ in seen.lengths.values())
    tokens = sum(t for _, t in seen.lengths.values())
    blocks = []
    rows = [["source", "documents", "tokens", "share", "epochs"]]
    for source in seen.sources:
        total = ("" if source.exact else "≈ ") + count(source.tokens)
        epochs = "–" if source.epochs is None else f"{source.epochs:.2f}"
        rows.append([source.name, count(source.documents), total, f"{source.weight:.1%}", epochs])
    blocks.append(table(rows, "<>>>>"))
    rows = [["tokens in a document", "documents", "of all", "tokens", "of all"]]
    for bucket, (many, sum_of) in sorted(seen.lengths.items()):
        name = f"{1 << bucket:,}–{(2 << bucket) - 1:,}"
        rows.append([name, count(many), share(many, documents), count(sum_of), share(sum_of, tokens)])
    blocks.append(table(rows, ">>>>>"))
    rows = [["mode", "hold a token", "padding", "in split documents"]]
    for mode, use in seen.modes.items():
        rows.append([mode, f"{use.filled:.2%}", share(use.padded, use.positions), share(use.split_tokens, use.tokens)])
    blocks.append(table(rows, "<>>>"))
    lines = [
        f"shuffle: rows stand {seen.displacement:.0%} as far from their shards' order as in a full shuffle; "
        f"{seen.together:,} rows are shuffled together, in each lane",
        f"speed: {seen.tokens_per_second:,.0f} tokens/s on one core",
    ]
    if wanted is not None:
        cores = math.ceil(wanted / seen.tokens_per_second)
        lines.append(f"{wanted:,.0f} tokens/s need {cores} {'core' if cores == 1 else 'cores'} for the loader")
    return "\n\n".join(blocks) + "\n\n" + "\n".join(lines)
