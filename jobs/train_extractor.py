"""Trains the model of the engine `gristmill` on pages whose main text people have marked.

    python -m jobs.train_extractor ../shared/data/crawl              # trains, writes pipeline/extract/model.npz
    python -m jobs.train_extractor ../shared/data/crawl --check      # fails if the file would change

The folder holds `.warc.gz` files and `gold.parquet` (url, source, lang, page_type, text). Pages that it does not name
are learnt from as well where trafilatura and resiliparse agree on them (jobs/extractor/agreement.py). Needs the extra
`extractor`. The same pages, code and versions give the same bytes. tests/bench/extract.py says how good the recipe is
on sites that it has not seen.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pipeline.extract
from pipeline.errors import GristmillError, UsageError

LIBRARIES = ("lightgbm", "numpy", "trafilatura", "justext", "resiliparse", "lxml")
OUT = Path(pipeline.extract.__file__).with_name("model.npz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pages", type=Path, help="folder of .warc.gz files and gold.parquet")
    parser.add_argument("--trees", type=int, nargs=2, metavar=("FIRST", "SECOND"), help="trees of the two stages")
    parser.add_argument("--out", type=Path, default=OUT, help="where to write (the package's model.npz)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file would change")


def run(args: argparse.Namespace) -> int:
    from jobs.extractor import agreement, labelling, model_file, pages
    from jobs.extractor.training import Learner, Settings

    try:
        versions = {
            name: metadata.version(name) for name in ("lightgbm", "numpy", "trafilatura", "resiliparse", "lxml")
        }
    except metadata.PackageNotFoundError as error:
        raise UsageError(f"training needs {error}: pip install 'gristmill[extractor]'") from None
    settings = Settings()
    if args.trees:
        first, second = args.trees
        settings = replace(settings, first=replace(settings.first, trees=first),
                           second=replace(settings.second, trees=second))  # fmt: skip
    found = pages.read(args.pages)
    agreed = list(agreement.agreed(found.unmarked))
    labelled = labelling.label([*found.gold, *agreed])
    learner = Learner(labelled, settings)
    model = learner.model()
    about: dict[str, Any] = {
        "made_by": "python -m jobs.train_extractor PAGES",
        "pages": {"files": {path.name: model_file.digest(path) for path in pages.inputs(args.pages)},
                  "gold": len(found.gold), "agreed": len(agreed), "learnt_from": len(labelled),
                  "shipped": "none of them"},
        "code": model_file.code_digest(),
        "settings": asdict(settings),
        "versions": versions,
    }  # fmt: skip
    data = model_file.to_bytes(model, about)
    print(f"{len(labelled)} pages, {sum(len(page.share) for page in labelled)} blocks; "
          f"{len(model.first.leaf)} + {len(model.second.leaf)} trees, {(model.tokens.keys > 0).sum()} tokens, "
          f"{len(data)} bytes")  # fmt: skip
    if args.check:
        if not args.out.is_file() or args.out.read_bytes() != data:
            raise GristmillError(f"{args.out} is not what these pages give: run without --check")
    else:
        args.out.write_bytes(data)
    return 0


if __name__ == "__main__":
    from jobs.cli import single

    sys.exit(single("jobs.train_extractor"))
