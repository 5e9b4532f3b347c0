"""The URL filter of FineWeb and RefinedWeb: blocked addresses, then strict, hard and soft words.

Matching ignores case (datatrove's does not, so "Casino" passes it) and `www.`; shared/rules.md 3.5 and 3.7, number 8.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pipeline.errors import Rejected, UsageError
from pipeline.recipe import Url, nearest

_WORD = re.compile(r"[^\W_]+")
_HOST = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/?#@]*@)?(\[[^\]]*\]|[^/?#:]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UrlRules:
    """Compiled once per process. `addresses` are hosts, or host/path, in lower case without scheme and `www.`."""

    addresses: frozenset[str]
    strict: re.Pattern[str] | None
    hard: frozenset[str]
    soft: frozenset[str]
    soft_limit: int


def compile_rules(settings: Url) -> UrlRules:
    """The rules of a recipe. Raises UsageError for a list that is not there, not readable or empty."""
    addresses = frozenset(_address(entry) for entry in _entries("url.blocked_domains", settings.blocked_domains))
    strict = sorted({_squeezed(entry) for entry in _entries("url.strict_words", settings.strict_words)} - {""})
    hard = frozenset("".join(_WORD.findall(e)) for e in _entries("url.hard_words", settings.hard_words)) - {""}
    soft = frozenset("".join(_WORD.findall(e)) for e in _entries("url.soft_words", settings.soft_words)) - {""}
    pattern = re.compile("|".join(map(re.escape, strict))) if strict else None
    return UrlRules(addresses, pattern, hard, soft, settings.soft_limit)


def blocked(url: str | None, rules: UrlRules) -> Rejected | None:
    """The verdict on a URL: (url, blocked_domain) or (url, blocked_word), else None; a missing URL passes."""
    if not url:
        return None
    lower = url.lower()
    if rules.addresses:
        address = _address(lower)
        host = address.partition("/")[0].partition("?")[0].partition(":")[0]
        for candidate in (host, address):
            if candidate in rules.addresses:
                return Rejected("url", "blocked_domain", candidate[:200])
    if rules.strict:
        hit = rules.strict.search(_squeezed(lower))
        if hit:
            return Rejected("url", "blocked_word", f"strict: {hit[0]}")
    if rules.hard or rules.soft:
        words = _WORD.findall(lower)
        for word in words:
            if word in rules.hard:
                return Rejected("url", "blocked_word", f"hard: {word}")
        soft = [word for word in words if word in rules.soft]
        if len(soft) >= rules.soft_limit:
            return Rejected("url", "blocked_word", f"soft: {' '.join(soft[:8])}")
    return None


def host_of(url: str | None) -> str | None:
    """The host of a URL in lower case, without user, port and final dot; None where there is none."""
    match = _HOST.match(url) if url else None
    return (match[1].lower().rstrip(".") or None) if match else None


def builtin_lists() -> list[str]:
    """Names of the shipped lists, for `builtin:NAME`."""
    folder = resources.files("pipeline.crawl.lists")
    return sorted(p.name.removesuffix(".txt.gz") for p in folder.iterdir() if p.name.endswith(".txt.gz"))


def _entries(key: str, sources: tuple[str, ...]) -> list[str]:
    entries: list[str] = []
    for source in sources:
        try:
            if source.startswith("builtin:"):
                name = source.removeprefix("builtin:")
                if name not in builtin_lists():
                    raise UsageError(f"recipe: {key}: no shipped list {name!r}{nearest(name, builtin_lists())}")
                data = resources.files("pipeline.crawl.lists").joinpath(f"{name}.txt.gz").read_bytes()
            else:
                data = Path(source).read_bytes()
            text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise UsageError(f"recipe: {key}: the list {source} cannot be read ({error})") from None
        found = [line.strip().lower() for line in text.splitlines()]
        found = [line for line in found if line]
        if not found:
            raise UsageError(f"recipe: {key}: the list {source} is empty")
        entries += found
    return entries


def _address(entry: str) -> str:
    """`https://www.Host/path/` and `host/path` are the same address."""
    scheme, colon, rest = entry.partition("://")
    bare = rest if colon and "/" not in scheme else entry
    return bare.removeprefix("www.").rstrip("/")


def _squeezed(text: str) -> str:
    return text.replace("-", "").replace(".", "").replace(" ", "")
