"""Do our rules drop what datatrove's filters drop? The same extracted texts through both, rule by rule.

    python -m tests.bench.conformance --peer-python PEER/bin/python            # both engines' texts of the real pages
    python -m tests.bench.conformance --toy                                    # ours only, on made-up texts

The peer's environment is described in ../shared/tools/peer_datatrove.py. Each of the four filter families is run on the
extracted text on its own, with the reference's defaults and without short-circuit; our side uses the same bounds. The
peer reads every text as English, so ours measures stop words as English too.

Bars: agreement >= 98 % per family; dropped by both / dropped by either >= 0.9 per family and per rule that fires 20
times or more. Texts with more than 5 % of letters of scripts written without spaces are set aside: read as English, the
peer takes a whole clause for one word, we take a letter (pipeline/text.py). They are counted, and the figures with
them are printed too. Every disagreement is given a cause; "unexplained" must be empty. Exit status 1 where a bar is
missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import text as words
from pipeline import text_kernels as tk
from pipeline.crawl import decode, warc
from pipeline.errors import Rejected
from pipeline.extract import extract
from pipeline.quality import signals
from pipeline.quality.edits import edit
from pipeline.recipe import C4Lines, Edit, Extract, Limits, Range, load
from pipeline.signals import RULES_BY_NAME

PROJECT = Path(__file__).resolve().parents[2]
PAGES = PROJECT.parent / "shared" / "data" / "crawl"
AGREEMENT, OVERLAP, MIN_FIRINGS = 0.98, 0.9, 20
#: A value this close to its bound, relatively, can fall on either side by how a few words are divided.
NEAR = 0.02
FAMILIES = {
    "gopher quality": "gopher_",
    "gopher repetition": "gopher_rep_",
    "c4": "c4_",
    "fineweb": "fineweb_",
}
C4_DEFAULTS = Edit(c4=C4Lines())
Mask = npt.NDArray[np.bool_]


def rules() -> dict[str, Range]:
    """Bounds of the four families, as the fineweb preset has them."""
    return load("fineweb").quality.rules


def family_rules(family: str) -> list[str]:
    names = [name for name in rules() if name.startswith(FAMILIES[family])]
    return [n for n in names if not n.startswith("gopher_rep_")] if family == "gopher quality" else names


def measured(text: str) -> dict[str, float | int | None]:
    """Every family on the extracted text; C4's on what its own line rules leave of it, as in its filter."""
    found = signals(text, text, "en")
    edited = edit(text, C4_DEFAULTS)
    found.update((k, v) for k, v in signals(text, edited, "en", C4_DEFAULTS).items() if k.startswith("c4_"))
    return found


def fails(value: float | int | None, bounds: Range) -> bool:
    return value is not None and (
        (bounds.min is not None and value < bounds.min) or (bounds.max is not None and value > bounds.max)
    )


def ours(texts: Sequence[str]) -> tuple[dict[str, Mask], list[dict[str, float | int | None]]]:
    """(fires by rule and by family, signals of each text)."""
    values = [measured(text) for text in texts]
    fires = {
        name: np.array([fails(v[RULES_BY_NAME[name].signal], bounds) for v in values], bool)
        for name, bounds in rules().items()
    }
    for family in FAMILIES:
        fires[family] = np.logical_or.reduce([fires[name] for name in family_rules(family)])
    return fires, values


def peers(texts: Sequence[str], python: Path) -> dict[str, Mask]:
    with tempfile.TemporaryDirectory() as folder:
        given, answer = f"{folder}/texts.parquet", f"{folder}/drops.parquet"
        pq.write_table(pa.table({"text": list(texts)}), given)
        script = Path(__file__).with_name("peer_filters.py")
        subprocess.run([str(python), str(script), given, answer], check=True)
        table = pq.read_table(answer)
    return {name: table[name].to_numpy().astype(bool) for name in table.column_names}


def without_spaces(text: str) -> bool:
    units = words.measure(text)
    return units.count(tk.SPACELESS_CHARS) > 0.05 * units.count(tk.N_WORD_CHARS)


def cause(text: str, family: str, values: dict[str, float | int | None], differ: Sequence[str]) -> str:
    """Why the two sides disagree on a text, by the rules on which they do; each is a choice stated at the rule."""
    if not text.strip():
        return "empty text: null signals, not an exception"
    if without_spaces(text):
        return "script without spaces: one letter is one word"
    if not differ:
        return "no single rule differs"
    for name in differ:
        bounds, value = rules()[name], values[RULES_BY_NAME[name].signal]
        limits = [b for b in (bounds.min, bounds.max) if b is not None]
        if value is None:
            return f"{name}: null signal"
        if any(abs(value - b) <= max(NEAR * abs(b), 1 if isinstance(value, int) else 0) for b in limits):
            return f"{name}: within {NEAR:.0%} of its bound, words divided differently"
    if family == "gopher repetition" and any("_line_" in n or "_para_" in n for n in differ):
        return "blank lines are neither duplicates nor counted"
    return f"unexplained: {', '.join(differ)}"


def compare(texts: Sequence[str], peer: dict[str, Mask]) -> tuple[list[str], bool]:
    """(lines of the report, whether every bar is met)."""
    fires, values = ours(texts)
    spaced = ~np.array([without_spaces(text) for text in texts])
    lines, good = [f"{len(texts)} texts, {(~spaced).sum()} with more than 5 % of a script without spaces"], True
    for family in FAMILIES:
        a, b = fires[family], peer[family]
        agree, overlap = float((a == b)[spaced].mean()), ratio(a[spaced], b[spaced])
        met = agree >= AGREEMENT and overlap >= OVERLAP
        lines.append(
            f"{family:18} agreement {agree:7.2%} (all texts {(a == b).mean():7.2%})  "
            f"both/either {overlap:.3f} (all texts {ratio(a, b):.3f})  ours {a.sum():5d}  peer {b.sum():5d}  "
            f"{'ok' if met else 'MISSED'}"
        )
        good &= met
        causes: Counter[str] = Counter()
        for i in np.flatnonzero(a != b):
            differ = [n for n in family_rules(family) if n in peer and fires[n][i] != peer[n][i]]
            causes[cause(texts[i], family, values[i], differ)] += 1
        for name in family_rules(family):
            if name not in peer:
                continue
            x, y = fires[name][spaced], peer[name][spaced]
            if name == "gopher_too_many_ellipsis":  # the peer asks about # first and says no more
                x = x & ~peer["gopher_too_many_hashes"][spaced]
            enough = (x | y).sum() >= MIN_FIRINGS
            met = not enough or ratio(x, y) >= OVERLAP
            good &= met
            verdict = ("ok" if met else "MISSED") if enough else f"under {MIN_FIRINGS} firings"
            lines.append(
                f"    {name:36} both/either {ratio(x, y):.3f}  ours {x.sum():5d}  peer {y.sum():5d}  {verdict}"
            )
        for why, n in causes.most_common():
            lines.append(f"    {n:4d} disagree: {why}")
            good &= not why.startswith("unexplained")
    return lines, good


def ratio(a: Mask, b: Mask) -> float:
    """Dropped by both / dropped by either; 1 where neither drops anything."""
    either = int((a | b).sum())
    return int((a & b).sum()) / either if either else 1.0


def extracted(pages: Path, engine: str, limit: int | None) -> Iterator[str]:
    """The main texts of real pages, each by `engine` favouring precision."""
    settings = Extract.model_validate({"engine": engine, "favor": "precision"})
    n = 0
    for path in sorted(pages.glob("*.warc.gz")):
        with path.open("rb") as stream:
            for record in warc.read(stream, limits=Limits()):
                if not isinstance(record, warc.Record) or n == limit:
                    continue
                try:
                    page = decode.decode(record, Limits())
                    yield extract(page.html, record.url, settings).text
                    n += 1
                except Rejected:
                    continue


def cached(pages: Path, engine: str, limit: int | None, cache: Path | None) -> list[str]:
    file = cache / f"{engine}.parquet" if cache else None
    if file and file.exists():
        texts: list[str] = pq.read_table(file)["text"].to_pylist()
        return texts[:limit]
    texts = list(extracted(pages, engine, limit))
    if file and limit is None:
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"text": texts}), file)
    return texts


def toy_texts() -> list[str]:
    sentence = "The ship came to the harbor with all that the people of the town have wished for."
    return [
        sentence,
        "\n".join(f"{sentence} It was day {i} of the {i + 3}th week." for i in range(40)),
        "\n\n".join([sentence] * 12),
        "- one\n- two\n- three\n" * 20,
        "今天天气很好。" * 30,
        "",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", type=Path, help="python of the peer's environment")
    parser.add_argument("--pages", type=Path, default=PAGES, help="folder of .warc.gz files")
    parser.add_argument("--engine", choices=("resiliparse", "trafilatura"), action="append")
    parser.add_argument("--limit", type=int, help="texts per engine")
    parser.add_argument("--cache", type=Path, help="folder that keeps the extracted texts between runs")
    parser.add_argument("--toy", action="store_true", help="made-up texts")
    given = parser.parse_args(argv)
    sources = ["toy"] if given.toy else given.engine or ["resiliparse", "trafilatura"]
    good = True
    for source in sources:
        texts = toy_texts() if given.toy else cached(given.pages, source, given.limit, given.cache)
        print(f"== {source}")
        if given.peer_python is None:
            fires, _ = ours(texts)
            print(f"{len(texts)} texts; the peer is absent (--peer-python), so only our firings:")
            print("\n".join(f"    {name:36} {mask.sum():5d}" for name, mask in fires.items()))
            continue
        lines, met = compare(texts, peers(texts, given.peer_python))
        print("\n".join(lines))
        good &= met
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
