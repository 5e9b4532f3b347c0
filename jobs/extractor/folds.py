"""Folds that no site is split over: the pages of one site are learnt from together or not at all.

Pages are of one site if they have one registered domain, or if they share their surroundings: menus, footers, teasers.
So sister sites on one template stay together, and so do pages whose addresses were taken from them (host `*.example`),
for which the page itself says where it is from.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from itertools import combinations

from pipeline.crawl.urls import host_of
from pipeline.extract.scan import WORDS, Blocks

#: Second labels below which country domains register: example.co.uk
_SECOND_LEVEL = frozenset(
    ("ac", "co", "com", "edu", "gob", "gouv", "gov", "go", "gv", "info", "ltd", "mil", "ne", "net", "nhs", "nom", "or",
     "org", "plc", "police", "sch")
)  # fmt: skip
_RESERVED = ("example", "invalid", "localhost", "test")  #: RFC 2606: no site's address
_NAMED = re.compile(
    rb"""<(?:link[^>]{0,200}rel\s*=\s*["']?canonical|meta[^>]{0,200}og:url|base)\b[^>]{0,500}?"""
    rb"""(?:href|content)\s*=\s*["']?(?:https?:)?//([\w.-]+)""",
    re.I,
)
_LINKED = re.compile(rb"""<a[^>]{1,300}?href\s*=\s*["']?\s*(?:https?:)?//([\w.-]+)""", re.I)
#: Pages are of one site that share this many blocks of text, and this part of those of the smaller page.
_SHARED, _PART = 5, 0.3
_COMMON = 60  #: a text on more pages says nothing: "Home"


def domain_of(url: str) -> str:
    """The registered domain, by the shape of the host name: right for all but a few registries of their own kind."""
    host = host_of(url) or url
    labels = host.split(".")
    if host.startswith("[") or all(label.isdigit() for label in labels):
        return host
    short = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVEL
    return ".".join(labels[-3 if short else -2 :])


def origin_of(url: str, html: bytes) -> str | None:
    """The registered domain that a page is from; None where neither its address nor its markup tells."""
    if not (host_of(url) or "").endswith(_RESERVED):
        return domain_of(url)
    named = _NAMED.search(html)
    hosts = [named[1]] if named else _LINKED.findall(html)
    found = Counter(domain_of(f"//{host.decode('latin-1').lower()}") for host in hosts)
    return found.most_common(1)[0][0] if found else None


def sites_of(urls: Sequence[str], pages: Sequence[Blocks]) -> list[int]:
    """A number for each page's site."""
    leader = list(range(len(pages)))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    def join(i: int, j: int) -> None:
        first, second = sorted((find(i), find(j)))
        leader[second] = first

    of_domain: dict[str, int] = {}
    of_text: dict[int, list[int]] = defaultdict(list)
    sizes = []
    for i, (url, blocks) in enumerate(zip(urls, pages, strict=True)):
        domain = origin_of(url, blocks.html.tobytes())
        if domain is not None:
            join(i, of_domain.setdefault(domain, i))
        texts = set(blocks.text_hash[blocks.counts[:, WORDS] > 0].tolist())
        sizes.append(len(texts))
        for text in texts:
            of_text[text].append(i)
    shared = Counter(pair for found in of_text.values() if len(found) <= _COMMON for pair in combinations(found, 2))
    for (i, j), count in shared.items():
        if count >= _SHARED and count >= _PART * min(sizes[i], sizes[j]):
            join(i, j)
    return [find(i) for i in range(len(pages))]


def folds_of(sites: Sequence[Hashable], n_folds: int) -> list[int]:
    """A fold, 0 to n_folds - 1, for each page's site: large sites first, each to the smallest fold so far."""
    pages = Counter(sites)
    order = sorted(pages, key=lambda site: (-pages[site], hashlib.sha256(repr(site).encode()).digest()))
    sizes, fold = [0] * n_folds, {}
    for site in order:
        fold[site] = sizes.index(min(sizes))
        sizes[fold[site]] += pages[site]
    return [fold[site] for site in sites]
