"""Charts as inline SVG: bars, histograms, curves. Colours and type come from the page's style sheet (both themes)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipeline.report.markup import Markup, tag
from pipeline.report.numbers import compact

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 10, 10, 34


def bar(parts: Sequence[tuple[float, str, str]], title: str) -> Markup:
    """One horizontal bar of stacked (share 0..1, class, label) parts, as wide as its cell."""
    rects: list[Markup] = []
    left = 0.0
    for share, class_, label in parts:
        if share > 0:
            rects.append(
                tag(
                    "rect",
                    tag("title", label),
                    x=f"{100 * left:.3f}%",
                    y=0,
                    width=f"{100 * share:.3f}%",
                    height="100%",
                    class_=class_,
                )
            )
        left += share
    return tag("svg", rects, class_="bar", role="img", aria_label=title)


def histogram(
    labels: Sequence[str],
    series: Sequence[tuple[str, str, Sequence[float]]],
    *,
    title: str,
    x_title: str,
    y_title: str,
    size: tuple[int, int] = (440, 210),
    every: int = 1,
    edges: bool = False,
) -> Markup:
    """Stacked vertical bars: `series` = (name, class, one number per label), the first at the bottom.

    `every` label is written; with `edges` labels stand at the bars' left edges (one more label than bars).
    """
    width, height = size
    plot_width, plot_height = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    n = len(series[0][2])
    totals = [sum(values[i] for _, _, values in series) for i in range(n)]
    ticks = nice_ticks(max([*totals, 1]))
    scale = plot_height / ticks[-1]
    step = plot_width / max(1, n)
    gap = min(2.0, step * 0.15)
    shapes: list[Markup] = [*_y_axis(ticks, scale, plot_width, plot_height)]
    for i in range(n):
        bottom = float(_TOP + plot_height)
        for name, class_, values in series:
            tall = values[i] * scale
            if tall <= 0:
                continue
            tall = max(tall, 0.75)
            bottom -= tall
            span = labels[i] if not edges else f"{labels[i]} to {labels[i + 1]}"
            shapes.append(
                tag(
                    "rect",
                    tag("title", f"{span}: {values[i]:,.0f} {name}"),
                    x=_LEFT + i * step + gap / 2,
                    y=bottom,
                    width=step - gap,
                    height=tall,
                    class_=class_,
                )
            )
    for i in range(0, len(labels), every):
        x = _LEFT + (i if edges else i + 0.5) * step
        shapes.append(tag("text", labels[i], x=x, y=height - 18.0, class_="tick mid"))
    return _frame(shapes, width, height, title, x_title, y_title)


def curve(
    points: Sequence[tuple[float, float]],
    bars: Sequence[tuple[float, float, float, str]],
    marks: Sequence[tuple[float, str]],
    *,
    title: str,
    x_title: str,
    y_title: str,
    right_title: str,
    size: tuple[int, int] = (520, 300),
) -> Markup:
    """A line over [0, 1] x [0, 1] with bars behind (left, right, number, label; scaled to their own largest) and
    vertical marks (x, label)."""
    width, height = size
    left_edge, right = 60, 62
    plot_width, plot_height = width - left_edge - right, height - _TOP - _BOTTOM - 12
    top = _TOP + 12

    def x(value: float) -> float:
        return left_edge + value * plot_width

    def y(value: float) -> float:
        return top + (1 - value) * plot_height

    shapes: list[Markup] = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        shapes.append(tag("line", x1=left_edge, x2=left_edge + plot_width, y1=y(tick), y2=y(tick), class_="grid"))
        shapes.append(tag("text", f"{100 * tick:.0f} %", x=left_edge - 6.0, y=y(tick) + 4, class_="tick end"))
    ticks = nice_ticks(max([number for _, _, number, _ in bars] or [1]), 2)
    for left, end, number, label in bars:
        if number:
            tall = max(number / ticks[-1] * plot_height, 1.0)
            shapes.append(
                tag(
                    "rect",
                    tag("title", label),
                    x=x(left) + 0.5,
                    y=y(0) - tall,
                    width=x(end) - x(left) - 1,
                    height=tall,
                    class_="soft",
                )
            )
    if bars:
        for number in ticks:
            shapes.append(
                tag(
                    "text",
                    compact(number),
                    x=left_edge + plot_width + 6.0,
                    y=y(number / ticks[-1]) + 4,
                    class_="tick",
                )
            )
        shapes.append(
            tag(
                "text",
                right_title,
                x=width - 8.0,
                y=top + plot_height / 2,
                class_="axis mid",
                transform=f"rotate(90 {width - 8} {top + plot_height / 2:.1f})",
            )
        )
    for tick in (0, 0.2, 0.4, 0.6, 0.8, 1):
        shapes.append(tag("text", f"{tick:g}", x=x(tick), y=y(0) + 15, class_="tick mid"))
    for place, label in marks:
        shapes.append(tag("line", x1=x(place), x2=x(place), y1=y(1), y2=y(0), class_="mark"))
        shapes.append(tag("text", label, x=x(place), y=top - 6.0, class_="tick mid strong"))
    path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
    shapes.append(tag("polyline", points=path, class_="curve"))
    return _frame(shapes, width, height, title, x_title, y_title)


def spark(values: Sequence[float], low: float, high: float, bounds: tuple[float | None, float | None]) -> Markup:
    """A small histogram over [low, high] without axes, the part outside `bounds` coloured as removed."""
    width, height = 132.0, 26.0
    n = len(values)
    most = max([*values, 1])
    step = width / max(1, n)
    span = (high - low) or 1.0
    shapes = []
    for i, value in enumerate(values):
        middle = low + (i + 0.5) * span / n
        out = (bounds[0] is not None and middle < bounds[0]) or (bounds[1] is not None and middle > bounds[1])
        if value:
            tall = max(1.0, value / most * (height - 2))
            shapes.append(
                tag(
                    "rect",
                    x=i * step,
                    y=height - tall,
                    width=step - 0.5,
                    height=tall,
                    class_="removed" if out else "kept",
                )
            )
    for bound in bounds:
        if bound is not None and low <= bound <= high:
            x = (bound - low) / span * width
            shapes.append(tag("line", x1=x, x2=x, y1=0, y2=height, class_="mark"))
    shapes.append(tag("line", x1=0, x2=width, y1=height - 0.5, y2=height - 0.5, class_="base"))
    return tag("svg", shapes, viewBox=f"0 0 {width:g} {height:g}", class_="spark", aria_hidden="true")


def nice_ticks(largest: float, most: int = 4) -> list[float]:
    """Round numbers from 0 to just above `largest`, at most `most` + 1 of them."""
    raw = largest / most
    power = 10 ** math.floor(math.log10(raw)) if raw > 0 else 1
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.9999)
    if largest >= most:
        step = max(1.0, step if step >= 3 else math.ceil(step))
    return [i * step for i in range(math.ceil(largest / step - 1e-9) + 1)]


def _y_axis(ticks: Sequence[float], scale: float, plot_width: float, plot_height: float) -> list[Markup]:
    shapes = []
    for tick in ticks:
        y = _TOP + plot_height - tick * scale
        shapes.append(tag("line", x1=_LEFT, x2=_LEFT + plot_width, y1=y, y2=y, class_="grid"))
        shapes.append(tag("text", compact(tick), x=_LEFT - 6.0, y=y + 4, class_="tick end"))
    return shapes


def _frame(shapes: list[Markup], width: int, height: int, title: str, x_title: str, y_title: str) -> Markup:
    middle = (height - _BOTTOM + _TOP) / 2
    shapes = [
        *shapes,
        tag("text", x_title, x=(width + _LEFT - _RIGHT) / 2, y=height - 3.0, class_="axis mid"),
        tag("text", y_title, x=11.0, y=middle, class_="axis mid", transform=f"rotate(-90 11 {middle:.1f})"),
    ]
    return tag("svg", shapes, viewBox=f"0 0 {width} {height}", class_="chart", role="img", aria_label=title)
