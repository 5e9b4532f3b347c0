"""Sections on what the rows hold: inputs, languages and sources, duplicates, samples, the run itself."""

from __future__ import annotations

import json
from typing import Any

from pipeline.report import charts, clusters, elsewhere, findings, numbers
from pipeline.report.counting import Breakdown, Integers
from pipeline.report.markup import Child, Markup, crawl, table, tag
from pipeline.report.samples import EXCERPT, SampledRecord
from pipeline.report.summary import Summary, shard_rows
from pipeline.report.survey import DEDUP, KEPT, SCORE_BINS, SCORES, WORDS, WORDS_KEPT

_TOP_ROWS = 15
_TITLE, _URL = 120, 300
_LANGUAGES = 60


def inputs(summary: Summary) -> Child:
    seen = summary.inputs
    head = ["input", "status", "size", "covered", "records", "skipped", "gaps", "detail"]
    rows: list[list[Child]] = []
    for row in seen.shown:
        status = row["status"] or numbers.NONE
        bad = status in ("failed", "damaged")
        rows.append(
            [
                crawl(numbers.excerpt(row["uri"] or "", _URL), class_="mono"),
                tag("span", status, class_="badge alert" if bad else "badge"),
                numbers.size(row["size"] or 0),
                numbers.share(row["bytes_covered"], row["size"]),
                _types(row["records_by_type"]),
                _types(row["skipped_by_type"]),
                numbers.count(row["gaps"]),
                tag("td", crawl(numbers.excerpt(row["detail"] or "", _URL)), class_="wrap"),
            ]
        )
    states = ", ".join(f"{n:,} {status}" for status, n in sorted(seen.by_status.items()))
    more = f" The {len(seen.shown)} that need attention most are shown." if seen.files > len(seen.shown) else ""
    text = f"{seen.files:,} files, {numbers.size(seen.size)}: {states}. Records: {_types(seen.records_by_type)}; "
    text += f"skipped as holding no page: {_types(seen.skipped_by_type)}.{more}"
    blocks: list[Child] = [tag("p", text, class_="lead"), table(head, rows, "<<>><<><")]
    document = summary.run.document
    for name, title, head in (
        ("failed", "Not read at all", ["input", "cause"]),
        ("copies", "Byte-identical copies, read once", ["copy", "is read as"]),
    ):
        listed = sorted((document.get(name) or {}).items())
        if listed:
            said: list[list[Child]] = [
                [crawl(numbers.excerpt(str(a), _URL), class_="mono"), crawl(numbers.excerpt(str(b), _URL))]
                for a, b in listed[:_TOP_ROWS]
            ]
            blocks += [tag("h3", f"{title}: {len(listed):,}"), table(head, said, "<<")]
    if seen.shown_gaps:
        gaps: list[list[Child]] = [
            [
                crawl(numbers.excerpt(gap["uri"] or "", _URL), class_="mono"),
                numbers.count(gap["offset"]),
                numbers.count(gap["length"]),
                crawl(gap["cause"]),
            ]
            for gap in seen.shown_gaps
        ]
        of = f", {len(seen.shown_gaps):,} of {seen.gaps:,}" if seen.gaps > len(seen.shown_gaps) else ""
        blocks += [
            tag("h3", f"Damaged gaps{of}"),
            table(["input", "at byte", "bytes", "cause"], gaps, "<>><"),
        ]
    return blocks


def _types(counts: dict[str, int]) -> str:
    return ", ".join(f"{numbers.printable(name)} {n:,}" for name, n in sorted(counts.items())) or numbers.NONE


def sources(summary: Summary) -> Child:
    survey = summary.survey
    blocks: list[Child] = [tag("div", [_scores(summary, name) for name in SCORES], class_="pair")]
    for name, title in (("lang", "Languages"), ("host", "Hosts")):
        blocks += [tag("h3", title), _breakdown(survey.breakdowns[name])]
    small = [
        tag("div", tag("h3", title), _breakdown(survey.breakdowns[name], words=False))
        for name, title in (
            ("charset", "Charsets"),
            ("charset_source", "Where the charset was found"),
            ("mime", "Media types"),
            ("extractor", "Extractors"),
        )
    ]
    blocks.append(tag("div", small, class_="pair"))
    losing = findings.losing_sources(survey)
    if losing:
        rows: list[list[Child]] = [
            [crawl(host), numbers.count(entered), numbers.count(removed), numbers.share(removed, entered)]
            for host, entered, removed in losing[:_TOP_ROWS]
        ]
        blocks += [
            tag("h3", "Hosts that dedup nearly emptied"),
            table(["host", "entered dedup", "removed there", "share"], rows, "<>>>"),
        ]
    return blocks


#: column -> what its chart is called, what its axis says
SCORE_TITLES = {
    "lang_score": ("Language scores", "score of the most likely language"),
    "quality_score": ("Quality scores", "quality_score"),
    "extract_confidence": ("Extraction confidence", "F1 that the engine expects of its text"),
    "visible_ratio": ("Share of the visible text", "characters of the text / characters shown by the page"),
}


def _scores(summary: Summary, name: str) -> Markup:
    survey = summary.survey
    scores = survey.scores[name].tolist()
    title, axis = SCORE_TITLES[name]
    chart = charts.histogram(
        [f"{i / SCORE_BINS:g}" for i in range(SCORE_BINS + 1)],
        [("documents", "kept", scores)],
        title=f"Documents by {title.lower()}",
        x_title=axis,
        y_title="documents",
        every=4,
        edges=True,
        size=(520, 220),
    )
    text = f": {survey.with_text:,} documents with a text, {survey.unscored[name]:,} of them without a value"
    return tag("figure", tag("figcaption", tag("b", title), text), chart)


def _breakdown(breakdown: Breakdown, *, words: bool = True) -> Child:
    """The largest values by records, with what became of them."""
    ranked = sorted(
        breakdown.rows.items(), key=lambda item: (-int(item[1][: KEPT + 1].sum()), item[0] is None, item[0] or "")
    )
    rows = [
        _breakdown_row(crawl(numbers.excerpt(name, _TITLE)) if name else tag("span", "none", class_="none"), row)
        for name, row in ranked[:_TOP_ROWS]
    ]
    rest = [row for _, row in ranked[_TOP_ROWS:]]
    total = breakdown.others + sum(rest) if rest else breakdown.others
    if total[: KEPT + 1].any():
        label = tag("span", f"{len(rest) + breakdown.folded:,} others", class_="none")
        rows.append(_breakdown_row(label, total))
    columns = 7 if words else 5
    head = ["", "records", "", "kept", "of them", "words", "words kept"]
    return table(head[:columns], [row[:columns] for row in rows], "<><>>>>"[:columns])


def _breakdown_row(label: Markup, row: Integers) -> list[Child]:
    records, kept = int(row[: KEPT + 1].sum()), int(row[KEPT])
    parts = [(kept / records, "kept", f"{kept:,} kept"), (1 - kept / records, "lost", f"{records - kept:,} removed")]
    return [
        label,
        numbers.count(records),
        charts.bar(parts, f"{numbers.share(kept, records)} kept"),
        numbers.count(kept),
        numbers.share(kept, records),
        numbers.count(int(row[WORDS])),
        numbers.count(int(row[WORDS_KEPT])),
    ]


def duplicates(summary: Summary) -> Child:
    seen = summary.duplicates
    entered = summary.survey.entered(DEDUP)
    settings = summary.run.recipe.dedup
    kinds = ", ".join(f"{n:,} {kind.replace('_', ' ')}" for kind, n in sorted(seen.kinds.items()))
    text = f"{entered:,} documents entered, {seen.removed:,} were removed"
    text += f" ({kinds}) in favour of {seen.clusters:,} survivors." if seen.removed else "."
    blocks: list[Child] = [tag("p", text, class_="lead")]
    if settings.near:
        blocks.append(_lsh_curve(summary))
    if seen.against:
        head, *lines = elsewhere.rows(seen.against)
        cells: list[list[Child]] = [[*line[:-1], crawl(line[-1], class_="mono")] for line in lines]
        blocks += [tag("h3", "Removed in favour of earlier runs"), table(head, cells, "<>>>><<")]
    if not seen.removed:
        return blocks
    rows: list[list[Child]] = [
        [label, numbers.count(n), numbers.count(removed)] for label, n, removed in clusters.size_groups(seen.sizes)
    ]
    blocks += [
        tag("h3", "Cluster sizes"),
        table(
            ["documents, survivor included", "clusters", "documents removed"],
            rows,
            ">>>",
            labelled=False,
            class_="compact",
        ),
        tag("h3", "Largest clusters"),
        *(_cluster(cluster) for cluster in seen.largest),
    ]
    return blocks


def _cluster(cluster: clusters.Cluster) -> Markup:
    survivor = cluster.survivor or {}
    name = survivor.get("title") or survivor.get("url") or cluster.kept_id
    rows: list[list[Child]] = []
    if survivor:
        rows.append([_url(survivor), tag("span", "survivor", class_="badge"), None, _words(survivor)])
    for member in cluster.members:
        similarity = f"{member['similarity']:.4f}" if member["similarity"] is not None else numbers.NONE
        rows.append([_url(member), member["kind"].replace("_", " "), similarity, _words(member)])
    more = cluster.size - 1 - len(cluster.members)
    where = f" in run {cluster.kept_run}" if cluster.kept_run else ""
    return tag(
        "details",
        tag(
            "summary",
            f"{cluster.size:,} documents{where}",
            tag("span", crawl(numbers.excerpt(name, _TITLE)), class_="hint"),
        ),
        table(["document", "", "similarity", "words"], rows, "<<>>"),
        tag("p", f"… and {more:,} more", class_="hint") if more > 0 else None,
    )


def _url(page: dict[str, Any]) -> Markup:
    return crawl(numbers.excerpt(page.get("url") or page["record_id"], _URL), class_="mono")


def _words(page: dict[str, Any]) -> str:
    return numbers.count(page.get("n_words"))


def _lsh_curve(summary: Summary) -> Markup:
    """P(candidate) over similarity for the recipe's bands x rows, with the measured similarities behind it."""
    settings = summary.run.recipe.dedup
    b, r = settings.bands, settings.rows
    measured = (summary.run.document.get("dedup") or {}).get("similarities") or {}
    edges, counts = measured.get("edges") or [], measured.get("counts") or []
    what = "pairs"
    if not edges:
        bins = clusters.SIMILARITY_BINS
        edges, counts = [i / bins for i in range(bins + 1)], summary.duplicates.similarities.tolist()
        what = "near duplicates"
    bars = _bars([float(edge) for edge in edges], [int(n) for n in counts], what)
    chart = charts.curve(
        [(i / 100, clusters.caught(i / 100, b, r)) for i in range(101)],
        bars if any(counts) else [],
        [(settings.threshold, f"threshold {settings.threshold:g}")],
        title=f"Probability of becoming a candidate with {b} bands of {r} rows",
        x_title="Jaccard similarity of two documents",
        y_title="share found",
        right_title=what,
    )
    levels = sorted({settings.threshold, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95})
    row: list[Child] = ["found", *(f"{clusters.caught(s, b, r):.3f}" for s in levels)]
    expected = table(["similarity", *(f"{s:g}" for s in levels)], [row], "<" + ">" * len(levels))
    found = [(left, right, n) for left, right, n, _ in bars if (left + right) / 2 >= settings.threshold and n]
    note = None
    if found:
        seen = sum(n for _, _, n in found)
        estimate = sum(n / max(1e-9, clusters.caught((left + right) / 2, b, r)) for left, right, n in found)
        note = tag(
            "p",
            f"{seen:,.0f} {what} at or above the threshold were found; by the curve about {estimate:,.0f} exist, so an "
            f"estimated {_glued(numbers.share(estimate - seen, estimate))} were never compared.",
            class_="hint",
        )
    caption = tag(
        "figcaption",
        tag("b", f"{b} bands × {r} rows"),
        f": the line is the share of pairs that become candidates, the bars are the measured similarities of {what}",
    )
    return tag("div", tag("figure", caption, chart, class_="wide"), expected, note)


def _glued(text: str) -> str:
    """With no line break inside, for figures in running text."""
    return text.replace(" ", "\u00a0")


def _bars(edges: list[float], counts: list[int], what: str) -> list[tuple[float, float, float, str]]:
    """(left, right, number, label); equal texts (a bin that begins at 1) are counted with the last one below."""
    below = [(left, min(right, 1.0), n) for left, right, n in zip(edges, edges[1:], counts, strict=False) if left < 1]
    if below:
        left, right, n = below[-1]
        below[-1] = (left, right, n + sum(counts[len(below) :]))
    return [(left, right, float(n), f"{left:g} to {right:g}: {n:,} {what}") for left, right, n in below]


def samples(summary: Summary) -> Child:
    blocks: list[Child] = [
        tag(
            "p",
            "For each reason the records whose hash of id and reason is smallest: a fair choice, and the same one "
            "however the run was split.",
            class_="lead",
        )
    ]
    for (stage, reason), entries in summary.samples.items():
        total = summary.survey.reasons[stage, reason][0]
        name = f"{stage} · {reason}" if reason else stage
        blocks.append(
            tag(
                "details",
                tag("summary", name, tag("span", f"{len(entries)} of {total:,}", class_="hint")),
                [_sample(entry) for entry in entries],
            )
        )
    return blocks


def _sample(entry: SampledRecord) -> Markup:
    record = entry.record
    where = [record["record_id"], f"{record['warc_file'] or ''} at {numbers.count(record['warc_offset'])}"]
    facts = [
        f"{label} {value}"
        for label, value in (
            ("language", record["lang"]),
            ("score", None if record["lang_score"] is None else numbers.value(record["lang_score"])),
            ("status", record["http_status"]),
            ("type", record["mime"]),
            ("charset", record["charset"]),
            ("bytes", None if record["html_bytes"] is None else numbers.count(record["html_bytes"])),
        )
        if value is not None
    ]
    signals = [f"{name}\u00a0{numbers.value(value)}" for name, value in entry.signals.items() if value is not None]
    text = entry.excerpt
    return tag(
        "div",
        tag("h4", crawl(numbers.excerpt(record["title"] or record["url"] or "no address", _TITLE))),
        tag("p", crawl(numbers.excerpt(record["url"] or "", _URL), class_="mono"), class_="where"),
        tag("p", " · ".join(where), class_="where"),
        _reasons(entry),
        tag("blockquote", crawl(numbers.excerpt(text, EXCERPT))) if text else None,
        tag("p", crawl(" · ".join(facts)), class_="facts"),
        tag("p", " · ".join(signals), class_="facts mono") if signals else None,
        class_="sample",
    )


def _reasons(entry: SampledRecord) -> list[Child]:
    lines: list[Child] = []
    if entry.record["detail"]:
        lines.append(tag("p", crawl(numbers.excerpt(entry.record["detail"], _URL)), class_="why"))
    for check in entry.checks:
        if check.outcome == "fail":
            margin = "" if check.margin is None else f", off by {numbers.value(abs(check.margin))}"
            what = f": {check.signal} is {numbers.value(check.value)}, kept is {check.range}{margin}"
            lines.append(tag("p", tag("b", check.rule), numbers.excerpt(what, _URL), class_="why"))
    if entry.overlap:
        row = entry.overlap
        where = f": entry {row['entry']:,} of {row['file']}, {row['field']}; {row['ngrams']:,} matches. "
        lines.append(
            tag("p", tag("b", row["benchmark"]), where, crawl(numbers.excerpt(row["span"], EXCERPT)), class_="why")
        )
    if entry.duplicate:
        row = entry.duplicate
        run = f" of run {row['kept_run']}" if row["kept_run"] else ""
        similarity = "" if row["similarity"] is None else f", similarity {row['similarity']:.4f}"
        text = f": {row['kept_id']}{run} was kept instead{similarity}, cluster of {row['cluster_size']:,}"
        lines.append(tag("p", tag("b", row["kind"].replace("_", " ")), text, class_="why"))
    if not lines and any(check.margin is not None for check in entry.checks):
        near = sorted(
            (_closeness(c.margin, c.minimum, c.maximum), c.rule) for c in entry.checks if c.margin is not None
        )
        lines.append(tag("p", "nearest to failing: ", ", ".join(rule for _, rule in near[:3]), class_="why"))
    return lines


def _closeness(margin: float | None, minimum: float | None, maximum: float | None) -> float:
    """Margin relative to the bounds, so that words and shares can be compared."""
    return abs(margin or 0) / (max(abs(minimum or 0), abs(maximum or 0)) or 1)


def run(summary: Summary) -> Child:
    document = summary.run.document
    blocks: list[Child] = []
    timings = document.get("timings") or {}
    seconds = {name: float(t["seconds"] if isinstance(t, dict) else t) for name, t in timings.items()}
    if seconds:
        whole = sum(seconds.values()) or 1
        rows: list[list[Child]] = [
            [name, charts.bar([(t / whole, "kept", numbers.duration(t))], name), numbers.duration(t)]
            for name, t in seconds.items()
        ]
        blocks += [tag("h3", "Time"), table(["stage", "", "wall time"], rows, "<<>")]
    shards: list[list[Child]] = [
        [name, *(numbers.count(n) for n in numbers_of)] for name, *numbers_of in shard_rows(summary)
    ]
    shards = shards[:_LANGUAGES]
    blocks += [tag("h3", "Shards"), table(["language", "files", "documents", "text bytes", "tokens"], shards, "<>>>>")]
    versions = document.get("versions") or {}
    if versions:
        listed: list[list[Child]] = [[name, str(v)] for name, v in sorted(versions.items())]
        blocks += [tag("h3", "Versions"), table(["part", "version"], listed, "<<")]
    recipe = json.dumps(document["recipe"], indent=2, ensure_ascii=False)
    blocks.append(tag("details", tag("summary", "Recipe"), tag("pre", recipe)))
    return blocks
