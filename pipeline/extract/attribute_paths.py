"""XPath expressions that look at an element's own tag and attributes only, evaluated fast: same elements, same order.

trafilatura decides what to drop and what to keep in some fifteen walks over a page, each calling a Python regular
expression from inside libxml2 for every element: a third of its time. Here such an expression is taken apart once, and
each combination of attribute values is judged once: pages repeat a few hundred of them. An expression of another shape
stays what it is, so a new version of the library is at worst slower.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import methodcaller
from typing import Any, Literal

from lxml import etree

Element = Any  #: lxml ships no types
Test = Callable[[Element], bool]
Source = Callable[[Element], str]
Paths = Callable[[Element], list[Element]]
Only = Literal["all", "first", "first child"]

_REGULAR_EXPRESSIONS = {"re": "http://exslt.org/regular-expressions"}
_MOST_KEPT = 20_000  #: judged combinations of one expression
_LONGEST_KEPT = 1_000  #: characters of one combination
_TOKEN = re.compile(r"\s*(?:('[^']*'|\"[^\"]*\")|(@[\w-]+|self::[\w-]+|re:test|[\w-]+|[()|,=]))")
_WALK = re.compile(r"\.//\*(?=\[)")
_TAG = re.compile(r"self::([\w-]+)")
_TAGS = re.compile(r"\s*self::[\w-]+(?:\s+or\s+self::[\w-]+)*\s*")


class _OtherShapeError(Exception):
    """An expression that is not of the kind above."""


@dataclass(frozen=True, slots=True)
class _Walk:
    """`.//*[tags][test][rest]`, all of it, the first one, or the first one below each parent."""

    candidates: Callable[[Element], Iterable[Element]]  #: by tag, or with any attribute that the test looks at
    test: Test  #: false for an element without them
    key: Callable[[Element], Hashable]  #: all that the test looks at
    rest: Paths | None
    only: Only
    judged: dict[Hashable, bool]

    def __call__(self, tree: Element) -> list[Element]:
        found = self._matches(tree)
        if self.only == "first":
            return list(islice(found, 1))
        if self.only == "first child":
            by_parent: dict[Element, Element] = {}
            for element in found:
                by_parent.setdefault(element.getparent(), element)
            return list(by_parent.values())
        return list(found)

    def _matches(self, tree: Element) -> Iterator[Element]:
        judged, key, rest = self.judged, self.key, self.rest
        for element in self.candidates(tree):
            values = key(element)
            verdict = judged.get(values)
            if verdict is None:
                verdict = self._judge(element, values)
            if verdict and element is not tree and (rest is None or rest(element)):
                yield element

    def _judge(self, element: Element, values: Hashable) -> bool:
        verdict = self.test(element)
        if len(self.judged) >= _MOST_KEPT:
            self.judged.clear()
        if len(repr(values)) <= _LONGEST_KEPT:
            self.judged[values] = verdict
        return verdict


def fast(expression: Any) -> Any:
    """A callable that gives what the lxml XPath `expression` gives; the same object where it is of another shape."""
    try:
        return _compile(expression.path.strip())
    except _OtherShapeError:
        return expression


def _compile(path: str) -> _Walk:
    only: Only = "all"
    if path.startswith("(") and path.endswith(")[1]"):
        path, only = path[1:-4].strip(), "first"
    walk = _WALK.match(path)
    if not walk:
        raise _OtherShapeError
    brackets = list(_brackets(path[walk.end() :].strip()))
    if only == "all" and brackets[-1].strip() == "1":
        brackets, only = brackets[:-1], "first child"
    tags = _TAG.findall(brackets.pop(0)) if _TAGS.fullmatch(brackets[0]) else []
    if not brackets or any(bracket.strip().isdigit() for bracket in brackets):
        raise _OtherShapeError
    parser = _Parser(brackets[0])
    names = sorted(parser.names)
    own = "".join(f"[{bracket}]" for bracket in brackets[1:])
    attributes = " or ".join(f"@{name}" for name in names)
    return _Walk(
        methodcaller("iter", *tags) if tags else etree.XPath(f"descendant::*[{attributes}]"),
        parser.test,
        _key(names, parser.unions),
        etree.XPath(f"self::*{own}", namespaces=_REGULAR_EXPRESSIONS) if own else None,
        only,
        {},
    )


def _brackets(text: str) -> Iterator[str]:
    """What stands inside each of `[...][...]`; strings may hold brackets."""
    depth, quote, begin = 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "[":
            begin = begin if depth else at + 1
            depth += 1
        elif letter == "]":
            depth -= 1
            if not depth:
                yield text[begin:at]
        elif not depth and not letter.isspace():
            raise _OtherShapeError


def _key(names: list[str], unions: set[tuple[str, str]]) -> Callable[[Element], Hashable]:
    """The values of the attributes, and which part of a union comes first where there are both."""
    joined = [name in {part for union in unions for part in union} for name in names]

    def values(element: Element) -> Hashable:
        get = element.get
        return tuple([get(name) for name in names])

    def values_and_order(element: Element) -> Hashable:
        get = element.get
        found = tuple([get(name) for name in names])
        if sum([part and value is not None for part, value in zip(joined, found, strict=True)]) > 1:
            return found, tuple(element.keys())
        return found

    def class_and_id(element: Element) -> Hashable:
        return element.get("class"), element.get("id")

    if any(joined):
        return values_and_order
    return class_and_id if names == ["class", "id"] else values


def _first(element: Element, a: str, b: str) -> str:
    """Which of two attributes stands first in the page: a union's string value is its value."""
    return a if next(name for name in element.keys() if name in (a, b)) == a else b  # noqa: SIM118 - not a dict


class _Parser:
    """Recursive descent over `term or term ...`; notes the attributes that are looked at."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        text = text.strip()
        while position < len(text):
            token = _TOKEN.match(text, position)
            if not token:
                raise _OtherShapeError
            self.tokens.append(token[1] or token[2])
            position = token.end()
        self.tokens.append("")
        self.names: set[str] = set()
        self.unions: set[tuple[str, str]] = set()
        self.test = self._any()
        if self.tokens != [""]:
            raise _OtherShapeError

    def _take(self, wanted: str | None = None) -> str:
        token = self.tokens.pop(0)
        if not token or (wanted is not None and token != wanted):
            raise _OtherShapeError
        return token

    def _any(self) -> Test:
        terms = [self._term()]
        while self.tokens[0] == "or":
            self._take()
            terms.append(self._term())
        return lambda element: any(term(element) for term in terms)

    def _term(self) -> Test:
        word = self.tokens[0]
        if word in ("contains", "starts-with", "re:test"):
            return self._call(self._take())
        if not word.startswith("@"):
            raise _OtherShapeError
        name = self._attribute()
        if self.tokens[0] == "=":
            self._take()
            wanted = self._literal()
            return lambda element: element.get(name) == wanted
        return lambda element: element.get(name) is not None

    def _call(self, function: str) -> Test:
        self._take("(")
        source = self._source()
        self._take(",")
        literal = self._literal()
        flags = ""
        if function == "re:test" and self.tokens[0] == ",":
            self._take()
            flags = self._literal()
        self._take(")")
        if function == "contains":
            return lambda element: literal in source(element)
        if function == "starts-with":
            return lambda element: source(element).startswith(literal)
        search = re.compile(literal, re.IGNORECASE if "i" in flags else 0).search
        return lambda element: search(source(element)) is not None

    def _source(self) -> Source:
        if self.tokens[0] == "translate":
            self._take()
            self._take("(")
            inner = self._source()
            self._take(",")
            old = self._literal()
            self._take(",")
            table = str.maketrans(old, self._literal())
            self._take(")")
            return lambda element: inner(element).translate(table)
        a = self._attribute()
        if self.tokens[0] != "|":
            return lambda element: element.get(a) or ""
        self._take()
        b = self._attribute()
        self.unions.add((a, b))

        def first(element: Element) -> str:
            values = element.get(a), element.get(b)
            if None in values:
                return values[0] or values[1] or ""
            return values[_first(element, a, b) == b] or ""

        return first

    def _attribute(self) -> str:
        token = self._take()
        if not token.startswith("@"):
            raise _OtherShapeError
        self.names.add(token[1:])
        return token[1:]

    def _literal(self) -> str:
        token = self._take()
        if token[0] not in "'\"":
            raise _OtherShapeError
        return token[1:-1]
