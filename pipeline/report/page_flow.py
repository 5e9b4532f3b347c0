"""Sections on what happened on the way: the funnel, the rules, the lengths."""

from __future__ import annotations

import numpy as np

from pipeline import datasets
from pipeline.report import charts, findings, numbers
from pipeline.report.checks import range_text
from pipeline.report.lengths import LengthRow, bucket_name
from pipeline.report.markup import Child, Markup, table, tag
from pipeline.report.summary import Summary
from pipeline.report.survey import QUALITY
from pipeline.signals import RULES_BY_NAME

#: Rules of the overlap view, and bins of a signal's little histogram.
_OVERLAP_RULES = 24
_SPARK_BINS = 33


def funnel(summary: Summary) -> Child:
    head = ["stage, reason", "records", "", "of all", "of remaining", "left", "characters", "words"]
    if summary.tokens is not None:
        head.append("tokens")
    rows = []
    for row in summary.funnel:
        whole = row.reason is None
        kept = row.stage == "kept"
        label = row.stage if row.reason is None else row.reason
        share = row.records / row.all if row.all else 0
        if kept:
            parts = [(share, "kept", f"{row.records:,} kept")]
        elif whole:
            left = row.left / row.all if row.all else 0
            parts = [(left, "soft", f"{row.left:,} left"), (share, "removed", f"{row.records:,} removed")]
        else:
            parts = [(share, "removed", f"{row.records:,} removed")]
        cells: list[Child] = [
            label,
            numbers.count(row.records),
            charts.bar(parts, f"{label}: {row.records:,} of {row.all:,} records") if whole or row.records else None,
            numbers.share(row.records, row.all),
            None if kept else numbers.share(row.records, row.entered),
            numbers.count(row.left) if whole and not kept else None,
            numbers.count(row.characters),
            numbers.count(row.words),
        ]
        if summary.tokens is not None:
            cells.append(numbers.count(summary.tokens) if kept else None)
        rows.append((("sum" if kept else "stage") if whole else "reason", cells))
    body = _classed(table(head, [cells for _, cells in rows], "<><" + ">" * (len(head) - 3)), [c for c, _ in rows])
    key = tag(
        "div",
        [
            tag("span", tag("i", class_=c), t)
            for c, t in (("soft", "goes on"), ("removed", "removed"), ("kept", "kept"))
        ],
        class_="key",
    )
    return [tag("p", "Every record read ends in exactly one line of this table.", class_="lead"), key, body]


def _classed(markup: Markup, classes: list[str]) -> Markup:
    """The table with a class on each body row."""
    before, body = markup.split("<tbody>", 1)
    rows = body.split("<tr>")
    marked = "".join(f'<tr class="{c}">{row}' for c, row in zip(classes, rows[1:], strict=True))
    return Markup(f"{before}<tbody>{rows[0]}{marked}")


def rules(summary: Summary) -> Child:
    survey = summary.survey
    if not survey.entered(QUALITY):
        return tag("p", "No record reached a rule.", class_="hint")
    quality = list(summary.run.recipe.quality.rules)
    language = [name for name in survey.rule_names if name not in quality]
    blocks: list[Child] = [
        tag(
            "p",
            "Every rule was tried on every record that entered its stage. “First” is how often it gave the reason; "
            "“alone” is how often no other rule failed, so how much would come back without it. The small histogram is "
            "the rule's signal over a sample of what entered quality, coloured where the rule fires.",
            class_="lead",
        ),
        _rule_table(summary, language, "language"),
    ]
    if not quality:
        return [*blocks, tag("p", "The recipe has no quality rules.", class_="hint")]
    return [*blocks, _rule_table(summary, quality, "quality"), *_overlap(summary, quality)]


def _rule_table(summary: Summary, names: list[str], stage: str) -> Markup:
    head = [f"{stage} rule", "keeps", "signal", "fires", "of input", "first", "alone", "not applicable", ""]
    rows: list[list[Child]] = []
    for name in names:
        counts = summary.survey.rules[name]
        bounds = summary.run.recipe.quality.rules.get(name)
        flag = findings.flag(counts) if bounds else None
        rows.append(
            [
                tag("span", name, title=RULES_BY_NAME[name].meaning if bounds else None),
                range_text(bounds.min, bounds.max) if bounds else _language_range(summary, name),
                _spark(summary, name) if bounds else None,
                numbers.count(counts.fires),
                numbers.share(counts.fires, counts.applicable),
                numbers.count(counts.first),
                numbers.count(counts.sole),
                _absent(summary, name),
                tag("span", f"{flag} fires" if flag == "never" else "nearly always", class_=_badge(flag))
                if flag
                else None,
            ]
        )
    return table(head, rows, "<<<>>>>><")


def _badge(flag: str) -> str:
    return "badge alert" if flag == "always" else "badge"


def _language_range(summary: Summary, name: str) -> str:
    settings = summary.run.recipe.language
    if name == "too_short_for_lang":
        return f"≥ {settings.min_letters} letters"
    if name == "low_score":
        return f"score > {numbers.value(settings.min_score)}" if settings.min_score else "any score"
    return numbers.excerpt(", ".join(settings.allowed), 40) or "any language"


def _absent(summary: Summary, name: str) -> Child:
    counts = summary.survey.rules[name]
    if not counts.absent:
        return None
    languages = ", ".join(f"{lang} {n:,}" for lang, n in counts.absent_languages.most_common(20))
    return tag("span", numbers.count(counts.absent), title=f"no value, by language: {languages}")


def _spark(summary: Summary, name: str) -> Child:
    """The signal's distribution between its 1st and 99th percentile, stretched so that the bounds are in view."""
    sample = summary.survey.signal_sample
    if sample is None:
        return None
    values = sample[RULES_BY_NAME[name].signal].drop_null().to_numpy().astype(float)
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    bounds = summary.run.recipe.quality.rules[name]
    low, high = float(np.percentile(values, 1)), float(np.percentile(values, 99))
    for bound in (bounds.min, bounds.max):
        # A bound far from all values (100,000 words) would squeeze the histogram into one bar.
        if bound is not None and abs(bound - low) < 4 * (high - low or abs(bound) or 1):
            low, high = min(low, bound), max(high, bound)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    counts, _ = np.histogram(np.clip(values, low, high), _SPARK_BINS, (low, high))
    return charts.spark(counts.tolist(), low, high, (bounds.min, bounds.max))


def _overlap(summary: Summary, quality: list[str]) -> list[Child]:
    survey = summary.survey
    index = {name: i for i, name in enumerate(survey.rule_names)}
    fires = {name: int(survey.overlap[index[name], index[name]]) for name in quality}
    fired = [name for name in quality if fires[name]]
    if len(fired) < 2:
        return []
    chosen = sorted(fired, key=lambda name: (-fires[name], name))[:_OVERLAP_RULES]
    chosen.sort(key=quality.index)
    head: list[Child] = ["of the records that fail …", *(str(i + 1) for i in range(len(chosen)))]
    rows: list[list[Child]] = []
    for i, one in enumerate(chosen):
        cells: list[Child] = [f"{i + 1}  {one}"]
        for other in chosen:
            both = int(survey.overlap[index[one], index[other]])
            share = both / fires[one]
            if one == other:
                cells.append(tag("td", "·", class_="cell self", style="--s:0"))
                continue
            percent = round(100 * share)
            text = "" if not both else ("<1" if percent == 0 else str(percent))
            title = f"{both:,} of the {fires[one]:,} that fail {one} fail {other} too"
            cells.append(tag("td", text, class_="cell", style=f"--s:{share:.3f}", title=title))
        rows.append(cells)
    left_out = f" The {len(chosen)} rules that fire most are shown." if len(fired) > len(chosen) else ""
    return [
        tag("h3", "Which rules say the same"),
        tag("p", f"… this percentage fails the rule of that number as well.{left_out}", class_="hint"),
        table(head, rows, "<" + ">" * len(chosen), class_="heat"),
    ]


def lengths(summary: Summary) -> Child:
    head = ["after", "documents", "total", "p50", "p95", "p99", "longest", "top bucket", "of total", "of docs", "skew"]
    rows: list[list[Child]] = []
    for row in summary.lengths:
        documents, total = row.top
        rows.append(
            [
                row.stage,
                numbers.count(row.lengths.n),
                f"{row.lengths.total:,} {row.unit}",
                *(numbers.count(row.lengths.percentile(p)) for p in (50, 95, 99, 100)),
                bucket_name(row.top_bucket),
                numbers.share(total, row.lengths.total),
                numbers.share(documents, row.lengths.n),
                numbers.NONE if row.shift is None else f"{row.shift:.3f}",
            ]
        )
    figures = [
        _length_figure(before, after)
        for before, after in zip(summary.lengths, summary.lengths[1:], strict=False)
        if after.stage in datasets.STAGES and before.lengths.n != after.lengths.n
    ]
    last = summary.lengths[-1]
    if last.stage not in datasets.STAGES:
        figures.append(_published_figure(last))
    return [
        tag(
            "p",
            "Skew is the Jensen–Shannon distance of the documents' length buckets to those after extraction: 0 is the "
            "same shape, 1 has nothing in common. The top bucket is the longest one that holds a document.",
            class_="lead",
        ),
        table(head, rows, "<>>>>>>>>>>"),
        tag("div", figures, class_="charts"),
    ]


def _length_figure(before: LengthRow, after: LengthRow) -> Markup:
    old, new = before.lengths.buckets(), after.lengths.buckets()
    buckets = range(min(old, default=0), max(old, default=0) + 1)
    kept = [float(new.get(b, (0, 0))[0]) for b in buckets]
    gone = [float(old.get(b, (0, 0))[0]) - k for b, k in zip(buckets, kept, strict=True)]
    removed = before.lengths.n - after.lengths.n
    caption = tag("figcaption", tag("b", after.stage), f" removes {removed:,} of {before.lengths.n:,} documents")
    chart = charts.histogram(
        [_edge(b) for b in buckets],
        [("go on", "kept", kept), ("removed", "removed", gone)],
        title=f"Documents by length before and after {after.stage}",
        x_title=f"{after.unit} (from)",
        y_title="documents",
        every=2,
    )
    return tag("figure", caption, chart)


def _published_figure(row: LengthRow) -> Markup:
    buckets = row.lengths.buckets()
    span = range(min(buckets, default=0), max(buckets, default=0) + 1)
    chart = charts.histogram(
        [_edge(b) for b in span],
        [(row.unit, "kept", [float(buckets.get(b, (0, 0))[1]) for b in span])],
        title=f"Published {row.unit} by document length",
        x_title=f"{row.unit} in the document (from)",
        y_title=f"{row.unit} in all",
        every=2,
    )
    return tag("figure", tag("figcaption", tag("b", "published"), f": where the {row.unit} are"), chart)


def _edge(bucket: int) -> str:
    return bucket_name(bucket).split("–", maxsplit=1)[0] if bucket else "1"
