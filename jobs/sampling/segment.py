"""The mix of a sample segment and its files, a few of them damaged as real ones are."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from random import Random

from jobs.sampling import pages, warc
from jobs.sampling.warc import Capture
from jobs.sampling.writer import Article

#: Pages per thousand.
MIX = {
    "article-en": 395, "article-de": 40, "article-fr": 30, "article-es": 25, "article-pl": 15, "article-ru": 15,
    "article-zh": 15, "article-ja": 15, "copy": 30, "syndicated": 55, "short": 35, "casino": 25, "stuffed": 30,
    "lorem": 20, "script_wall": 20, "code": 20, "links": 30, "forum": 25, "teasers": 20, "numbers": 15, "tags": 10,
    "mixed": 10, "not_found": 25, "redirect": 30, "pdf": 10, "image": 10, "empty": 5, "revisit": 20, "cut": 5,
}  # fmt: skip

FEWEST_PAGES = 20
PAGES_PER_FILE = 120
_DAMAGED_SHARE = 0.05


def files(n_pages: int, seed: int) -> Iterator[tuple[str, bytes, Counter[str]]]:
    """(name, bytes, pages by kind) of each file; the last one is damaged."""
    captures = build(n_pages, seed)
    n_damaged = max(4, round(n_pages * _DAMAGED_SHARE))
    whole, broken = captures[:-n_damaged], captures[-n_damaged:]
    namespace = uuid.uuid5(uuid.NAMESPACE_URL, f"gristmill-sample:{n_pages}:{seed}")
    for start in range(0, len(whole), PAGES_PER_FILE):
        chunk = whole[start : start + PAGES_PER_FILE]
        name = f"sample-{start // PAGES_PER_FILE:05}.warc.gz"
        members = [m for i, page in enumerate(chunk) for m in warc.records(page, start + i, namespace)]
        yield name, b"".join([warc.warcinfo(name, namespace), *members]), Counter(page.kind for page in chunk)
    name = "sample-damaged.warc.gz"
    groups = [warc.records(page, len(whole) + i, namespace) for i, page in enumerate(broken)]
    data = warc.warcinfo(name, namespace) + _damage(groups, Random(f"{seed}:damage"))
    yield name, data, Counter(page.kind for page in broken)


def build(n_pages: int, seed: int) -> list[Capture]:
    """The segment's pages in crawl order."""
    kinds = _deal(n_pages)
    Random(f"{seed}:order").shuffle(kinds)
    written: dict[int, Article] = {}
    captures: dict[int, Capture] = {}
    for number, kind in enumerate(kinds):
        rng = Random(f"{seed}:{number}:{kind}")
        if kind.startswith("article-"):
            written[number], captures[number] = pages.good(kind.removeprefix("article-"), number, rng)
        elif kind in pages.BUILDERS:
            captures[number] = pages.BUILDERS[kind](number, rng)
    originals = [number for number, kind in enumerate(kinds) if kind == "article-en"]
    for number, kind in enumerate(kinds):
        rng = Random(f"{seed}:{number}:{kind}")
        if kind == "copy":
            captures[number] = pages.copy_of(written[rng.choice(originals)], number, rng)
        elif kind == "syndicated":
            captures[number] = pages.syndicated_copy(written[rng.choice(originals)], number, rng)
    return [captures[number] for number in range(n_pages)]


def _deal(n_pages: int) -> list[str]:
    """`n_pages` kinds in the proportions of MIX: largest remainders first."""
    total = sum(MIX.values())
    counts = {kind: n_pages * share // total for kind, share in MIX.items()}
    by_remainder = sorted(MIX, key=lambda kind: (-(n_pages * MIX[kind] % total), kind))
    for kind in by_remainder[: n_pages - sum(counts.values())]:
        counts[kind] += 1
    return [kind for kind in MIX for _ in range(counts[kind])]


def _damage(groups: list[list[bytes]], rng: Random) -> bytes:
    """Garbage after the first page, flipped bits in a response half-way, and the last one broken off."""
    half, last = len(groups) // 2, len(groups) - 1
    response = bytearray(groups[half][1])
    for at in range(len(response) // 3, len(response) // 3 + 8):
        response[at] ^= 0x5A
    groups[half][1] = bytes(response)
    groups[last] = [groups[last][0], groups[last][1][: len(groups[last][1]) * 2 // 3]]
    groups[0].append(rng.randbytes(700))
    return b"".join(m for group in groups for m in group)
