"""Broken pages through scan, model and text: nothing may crash, be out of bounds, or be slow.

    python -m tests.bench.fuzz_extract --seconds 300            # with numba's bounds checks, compiled anew
    python -m tests.bench.fuzz_extract --toy                    # a second, as compiled for every day

Pages are real ones (../shared/data/crawl), cut, spliced and with bytes changed, and made-up tag soup. Prints how many
of each and what failed; exit status 1 if anything did. A failing page is written to --save.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

PAGES = Path(__file__).resolve().parents[3] / "shared" / "data" / "crawl"
#: A page of this many bytes may take a second (tens of milliseconds are usual)
BYTES_PER_SECOND = 2_000_000
NAMES = """
div p a b i span ul ol li dl dt dd table tr td th tbody h1 h2 form pre br img hr script style svg template select title
button label article main nav x-y unknown textarea noscript iframe object body html
"""
TAGS = NAMES.split()
PIECES = [
    "<", ">", "</", "/>", "<!--", "-->", "--!>", "<!", "<?", "&", "&#", "&#x", ";", "&amp;", "&nbsp;", "&nGt;", "&#0;",
    "'", '"', "=", " ", "\n", "\t", "\0", "\x0b", "text", "Two words.", "漢字", "ภา", "é", "\u00ad", "\u200d",
    "\U0001f600", "a" * 40, " class=", ' class="postBody comment-12 nav"', " id='x", " style='display:none'", " hidden",
    " href=x", " start=7", '="', "x=y>z",
]  # fmt: skip
BYTES = [b"\x80", b"\xff", b"\xc3", b"\xe6\xbc", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\0"]


def soup(draw: random.Random) -> bytes:
    """Tags and scraps of markup in any order; sometimes the same many times."""
    parts: list[bytes] = []
    for _ in range(draw.randrange(1, 60)):
        kind = draw.random()
        if kind < 0.35:
            piece = f"<{draw.choice(TAGS)}{draw.choice(PIECES) if draw.random() < 0.3 else ''}>".encode()
        elif kind < 0.6:
            piece = f"</{draw.choice(TAGS)}>".encode()
        elif kind < 0.95:
            piece = draw.choice(PIECES).encode()
        else:
            piece = draw.choice(BYTES)
        parts.append(piece * (draw.choice((2, 3, 70, 600, 3000)) if draw.random() < 0.05 else 1))
    return b"".join(parts)


def broken(draw: random.Random, pages: list[bytes]) -> bytes:
    """A real page with something done to it."""
    page = bytearray(draw.choice(pages))
    for _ in range(draw.randrange(1, 4)):
        a = draw.randrange(len(page) + 1)
        b = min(len(page), a + draw.choice((1, 5, 100, 5000)))
        what = draw.randrange(6)
        if what == 0:
            del page[a:]
        elif what == 1:
            del page[a:b]
        elif what == 2:
            page[a:a] = soup(draw)
        elif what == 3:
            page[a:b] = page[a:b] * draw.choice((2, 10))
        elif what == 4:
            other = draw.choice(pages)
            page[a:b] = other[draw.randrange(len(other) + 1) :][:20_000]
        else:
            for _ in range(draw.randrange(1, 200)):
                if page:
                    page[draw.randrange(len(page))] = draw.choice(b"<>&;\"'=/-! \0\xff") if draw.random() < 0.8 else 97
    return bytes(page)


def check(page: bytes, draw: random.Random) -> str | None:
    """What is wrong with the outcome for this page, if anything."""
    import numpy as np

    from pipeline.extract import scan as sc
    from pipeline.extract.emit import emit
    from pipeline.extract.gristmill import selected
    from pipeline.extract.model import predict, shipped
    from pipeline.recipe import Extract

    begin = time.process_time()
    try:
        blocks = sc.scan(page)
        n = len(blocks.owner)
        everything = emit(blocks, np.ones(n, np.bool_))
        probability = predict(shipped(), blocks)
        kept, confidence = selected(
            blocks, probability, draw.random(), Extract(tables=draw.random() < 0.5, comments=draw.random() < 0.5)
        )
        emit(blocks, kept)
        emit(blocks, np.array([draw.random() < 0.5 for _ in range(n)], np.bool_))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if time.process_time() - begin > 1 + len(page) / BYTES_PER_SECOND:
        return "slow"
    counts, m, s = blocks.counts, len(blocks.parent), len(blocks.span_end)
    sound = {
        "span order": bool((blocks.span_start[1:] >= blocks.span_end[:-1]).all()),
        "span range": n == 0 or (blocks.span_start[0] >= 0 and int(blocks.span_end[-1]) <= len(page)),
        "spans of blocks": bool((np.diff(blocks.first_span) >= 1).all() and blocks.first_span[n] == s),
        "parents": bool((blocks.parent[1:] < np.arange(1, m)).all() and (blocks.parent[1:] >= 0).all()),
        "depths": bool((blocks.depth[1:] == blocks.depth[blocks.parent[1:]] + 1).all()),
        "owners": bool(((blocks.owner >= 0) & (blocks.owner < m)).all()),
        "tokens": bool(((blocks.token_element > 0) & (blocks.token_element < m)).all()),
        "characters": bool((counts[:, sc.CHARS] > 0).all() and (counts >= 0).all()),
        "parts of characters": bool(
            (counts[:, [sc.LINK_CHARS, sc.BOLD_CHARS, sc.HIDDEN]] <= counts[:, [sc.CHARS]]).all()
        ),
        "text": bool(everything) == (n > 0),
        "probabilities": bool(((probability >= 0) & (probability <= 1)).all()) and 0 <= confidence <= 1,
    }  # fmt: skip
    return ", ".join(name for name, good in sound.items() if not good) or None


def real_pages(at_most: int) -> list[bytes]:
    from pipeline.crawl import warc

    pages: list[bytes] = []
    for path in sorted(PAGES.glob("pages-*.warc.gz")):
        with path.open("rb") as stream:
            events: list[Any] = list(islice(warc.read(stream), at_most // 5))
        pages += [e.block for e in events if isinstance(e, warc.Record) and 0 < len(e.block) < 300_000]
    return pages[:at_most]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path, default=Path(tempfile.gettempdir()) / "failing-page.html")
    parser.add_argument("--toy", action="store_true")
    options = parser.parse_args()
    if not options.toy:  # before numba is loaded; its cache must not hold code with and without checks
        os.environ["NUMBA_BOUNDSCHECK"] = "1"
        os.environ["NUMBA_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / "gristmill-bounds-checked")
    pages = real_pages(20 if options.toy else 1000) or [soup(random.Random(i)) for i in range(50)]
    check(pages[0], random.Random(0))  # compiles
    draw, done, failures = random.Random(options.seed), Counter[str](), Counter[str]()
    end = time.monotonic() + (1 if options.toy else options.seconds)
    while time.monotonic() < end:
        kind = draw.choice(("soup", "broken"))
        page = soup(draw) if kind == "soup" else broken(draw, pages)
        done[kind] += 1
        problem = check(page, draw)
        if problem:
            failures[f"{kind}: {problem}"] += 1
            options.save.write_bytes(page)
    print(f"{done['soup']} of tag soup, {done['broken']} broken pages of {len(pages)} real ones (seed {options.seed})")
    for failure, times in failures.most_common():
        print(f"FAILED {times}x {failure}; the last one: {options.save}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
