"""Text that a page holds only as JSON: JSON-LD, and the state that a framework draws the page from in the browser.

The longest prose under a key such as articleBody, body or content is taken: one string, or the strings of a list of
paragraphs or posts. Work is bounded: MAX_CHARS of JSON, MAX_NODES values, MAX_DEPTH levels; more is not looked at.
"""

from __future__ import annotations

import html as html_module
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from pipeline.extract.emit import emit
from pipeline.extract.scan import scan

MAX_CHARS, MAX_NODES, MAX_DEPTH = 4_000_000, 200_000, 40
#: Shorter is no text of a page.
_LEAST_CHARS, _LEAST_WORDS = 200, 25

_SCRIPT = re.compile(r"<script\b([^<>]{0,2000})>", re.IGNORECASE)
#: What is assigned to a name that a framework's state has
_ASSIGNED = re.compile(
    r"(?:__[A-Za-z0-9_]{2,40}|[A-Za-z]{0,20}(?:State|STATE|Data|DATA))[\"'\])]{0,3}\s{0,9}=\s{0,9}(?=[{\[])"
)
_ASSIGNMENTS_AT_MOST, _LOOK_AHEAD = 20, 2_000
#: An attribute that holds JSON
_ATTRIBUTE = re.compile(r"\sdata-[a-z-]{2,40}=([\"'])(?=[{\[](?:&quot;|[\"{\[]))")
_BODY_KEYS = """
articlebody body bodyhtml bodytext content contenthtml contents text html richtext story paragraphs blocks sections
markdown fulltext posttext posts message reviewbody description recipeinstructions postbody maincontent cooked
"""
_INNER_KEYS = "children value c items nodes p paragraph data model components elements document"
_BODY = frozenset(_BODY_KEYS.split())
#: Keys of what is said, below a list of paragraphs
_PARTS = _BODY.union(_INNER_KEYS.split())
_DECODER = json.JSONDecoder(parse_int=float)  # numbers are not looked at, and int() refuses long ones
_WORD = re.compile(r"\w+")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,500}>")
_KEY = re.compile("[^a-z]+")


def json_text(html: str) -> str | None:
    """The text that the page's scripts hold; None where they have none of _LEAST_CHARS or more."""
    found = _Search()
    for text in _sources(html):
        found.read(text)
    return found.best or None


class _Search:
    """The best text so far, and how much more may be looked at."""

    def __init__(self) -> None:
        self.best = ""
        self.chars, self.nodes = MAX_CHARS, MAX_NODES

    def read(self, text: str) -> None:
        """Look through a string that begins with JSON."""
        self.chars -= len(text)
        if self.chars < 0:
            return
        try:
            tree, _ = _DECODER.raw_decode(text)
        except (ValueError, RecursionError):
            return
        open_values: list[tuple[Any, int, bool]] = [(tree, 0, False)]
        while open_values and self.nodes > 0:
            value, depth, is_body = open_values.pop()
            self.nodes -= 1
            if isinstance(value, str):
                if len(value) < _LEAST_CHARS:
                    continue
                if value.startswith(("{", "[")):  # JSON in JSON
                    self.read(value)
                elif is_body and len(value) > len(self.best):
                    self._offer(_plain(value))
            elif depth < MAX_DEPTH and isinstance(value, dict):
                open_values.extend((v, depth + 1, _name(k) in _BODY) for k, v in value.items())
            elif depth < MAX_DEPTH and isinstance(value, list):
                text = "\n".join(self._parts(value)) if is_body else ""
                if not self._offer(text):
                    open_values.extend((v, depth + 1, False) for v in value)

    def _offer(self, text: str) -> bool:
        if not _is_prose(text):
            return False
        self.best = max(self.best, text, key=len)
        return True

    def _parts(self, paragraphs: list[Any]) -> list[str]:
        """The strings of a list of paragraphs, in order."""
        parts: list[str] = []
        open_values: list[tuple[Any, int]] = [(paragraphs, 0)]
        while open_values and self.nodes > 0:
            value, depth = open_values.pop()
            self.nodes -= 1
            if isinstance(value, str):
                if " " in value.strip() and (plain := _plain(value)):
                    parts.append(plain)
            elif depth < MAX_DEPTH:
                inner: list[Any] = []
                if isinstance(value, list):
                    inner = value
                elif isinstance(value, dict):
                    inner = [v for k, v in value.items() if _name(k) in _PARTS]
                open_values.extend((v, depth + 1) for v in reversed(inner))
        return parts


def _sources(html: str) -> Iterator[str]:
    """The strings that may hold the text: what scripts hold or assign, attributes."""
    at = 0
    while (script := _SCRIPT.search(html, at)) is not None:
        start = script.end()
        end = html.find("</script", start)
        at = end = len(html) if end < 0 else end
        if "json" in script[1].lower():
            yield html[start:end].strip()
        else:
            window = html[start : min(end, start + _LOOK_AHEAD)]
            for assigned in list(_ASSIGNED.finditer(window))[:_ASSIGNMENTS_AT_MOST]:
                yield html[start + assigned.end() : end]
    for attribute in _ATTRIBUTE.finditer(html):
        start = attribute.end()
        end = html.find(attribute[1], start)
        if end - start > _LEAST_CHARS:
            yield html_module.unescape(html[start:end])


def _name(key: Any) -> str:
    return _KEY.sub("", str(key)[:64].lower())


def _plain(text: str) -> str:
    """A string's text: its tags stripped as a page's are; without any, its own lines."""
    if _TAG.search(text) is None:
        return "\n".join(line for line in map(str.strip, text.splitlines()) if line)
    blocks = scan(text.encode("utf-8", "replace"))
    return emit(blocks, np.ones(len(blocks.owner), np.bool_))


def _is_prose(text: str) -> bool:
    """Whether a string reads like text: words, spaces between them, and not the signs of code."""
    if len(text) < _LEAST_CHARS or text.startswith(("{", "[", "http", "data:")):
        return False
    signs = sum(text.count(sign) for sign in "{}<>;=_\\")
    head = text[:2000]
    return signs * 20 < len(text) and sum(map(str.isalpha, head)) > 0.5 * len(head) and _words(text) >= _LEAST_WORDS


def _words(text: str) -> int:
    return len(_WORD.findall(text[:5000]))
