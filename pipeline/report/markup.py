"""HTML and SVG as values: text is escaped unless it was made here, so nothing from the crawl can become markup."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

from pipeline.report.numbers import printable

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9:-]*\Z")
#: Elements whose content a browser does not read as escaped text, or that load or run something: never made here.
_FORBIDDEN = frozenset(
    [
        "script",
        "iframe",
        "object",
        "embed",
        "link",
        "a",
        "img",
        "form",
        "base",
        "foreignObject",
        "use",
        "image",
        "animate",
        "set",
    ]
)


class Markup(str):
    """A string that is HTML already. Only `tag`, `join` and `raw` make one."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"


def tag(name: str, *children: Child, **attributes: str | float | None) -> Markup:
    """`<name attributes>children</name>`; strings that are no Markup are escaped, None is left out.

    Attribute names: a trailing `_` is dropped and `_` becomes `-` (`class_`, `stroke_width`). There is no way to make
    a link, a script or an event handler.
    """
    if not _NAME.match(name) or name in _FORBIDDEN:
        raise ValueError(f"not an element of a report: {name}")
    parts = []
    for key, value in attributes.items():
        if value is None:
            continue
        key = key.rstrip("_").replace("_", "-")
        if not _NAME.match(key) or key.startswith("on") or key in ("href", "src", "srcdoc", "action"):
            raise ValueError(f"not an attribute of a report: {key}")
        parts.append(f' {key}="{escape(_number(value) if isinstance(value, float) else str(value))}"')
    return Markup(f"<{name}{''.join(parts)}>{join(children)}</{name}>")


def jump(fragment: str, text: str) -> Markup:
    """The only kind of link there is: to a section of this page, by a name of ours."""
    if not re.fullmatch(r"[a-z]+", fragment):
        raise ValueError(f"not a section's name: {fragment}")
    return Markup(f'<a href="#{fragment}">{escape(text)}</a>')


def join(children: Iterable[Child]) -> Markup:
    """Children one after the other, escaped where they are no Markup."""
    return Markup("".join(_flat(child) for child in children))


def _flat(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(child)
    if isinstance(child, int):
        return str(child)
    return join(child)


def escape(text: str) -> str:
    return html.escape(printable(text, newlines=True), quote=True)


def crawl(text: str | None, **attributes: str) -> Markup:
    """Text of the crawl: its direction stays inside it."""
    return tag("bdi", text or "", dir="auto", **attributes)


def raw(trusted: str) -> Markup:
    """A constant of ours (a style sheet). Never text that was read from anywhere else."""
    return Markup(trusted)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def table(
    head: Iterable[Child], rows: Iterable[Iterable[Child]], align: str, *, class_: str = "", labelled: bool = True
) -> Markup:
    """A table that scrolls sideways on a narrow page; `align`: one of `<`, `>` per column."""
    side = {"<": None, ">": "n"}
    body = []
    for row in rows:
        cells = []
        for column, (child, a) in enumerate(zip(row, align, strict=True)):
            first = labelled and column == 0
            cells.append(
                tag("th" if first else "td", child, class_=side[a], scope="row" if first else None)
                if not (isinstance(child, Markup) and child.startswith(("<td", "<th")))
                else child
            )
        body.append(tag("tr", cells))
    header = tag("tr", [tag("th", cell, class_=side[a], scope="col") for cell, a in zip(head, align, strict=True)])
    inner = tag("table", tag("thead", header), tag("tbody", body), class_=class_ or None)
    return tag("div", inner, class_="scroll", tabindex="0")
