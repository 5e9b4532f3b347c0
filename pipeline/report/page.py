"""report.html: one file that opens offline, runs nothing, links nowhere and is the same bytes for the same run."""

from __future__ import annotations

from importlib import resources

from pipeline.report import numbers, page_flow, page_rows
from pipeline.report.markup import Child, Markup, jump, raw, tag
from pipeline.report.summary import Summary

#: Even if something got past the escaping, a browser would neither run nor fetch it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(summary: Summary) -> bytes:
    """The whole page as UTF-8."""
    sections = [
        ("summary", "Summary", _summary(summary)),
        ("inputs", "Inputs", page_rows.inputs(summary)),
        ("funnel", "Funnel", page_flow.funnel(summary)),
        ("rules", "Rules", page_flow.rules(summary)),
        ("lengths", "Lengths", page_flow.lengths(summary)),
        ("sources", "Languages and sources", page_rows.sources(summary)),
        ("duplicates", "Duplicates", page_rows.duplicates(summary)),
        ("samples", "Samples", page_rows.samples(summary)),
        ("run", "Run", page_rows.run(summary)),
    ]
    style = resources.files("pipeline.report").joinpath("style.css").read_text("utf-8")
    title = f"Gristmill report: {summary.run.recipe.name}, {summary.survey.records:,} records"
    head = tag(
        "head",
        raw('<meta charset="utf-8">'),
        raw(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        raw('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        raw('<meta name="referrer" content="no-referrer">'),
        tag("title", title),
        tag("style", raw(style)),
    )
    navigation = tag("nav", tag("ol", [tag("li", jump(name, label)) for name, label, _ in sections]))
    body = tag(
        "body",
        tag("div", _header(summary), class_="top"),
        navigation,
        tag("main", [_section(name, label, content) for name, label, content in sections], _footer()),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n".encode()


def _section(name: str, label: str, content: Child) -> Markup:
    return tag("section", tag("h2", label), content, id=name)


def _header(summary: Summary) -> Child:
    document = summary.run.document
    given = [str(item) for item in document.get("inputs_given") or ()]
    shown = ", ".join(given[:3]) + (f" and {len(given) - 3:,} more" if len(given) > 3 else "")
    facts = [f"Recipe {summary.run.recipe.name}", f"run {document.get('run_id', numbers.NONE)}"]
    if document.get("finished"):
        facts.append(f"finished {str(document['finished']).replace('T', ' ')}")
    return [
        tag("h1", "What came in, what went out, and why"),
        tag("p", " · ".join(facts), class_="lead"),
        tag("p", "From ", tag("span", shown, class_="mono"), class_="lead") if shown else None,
    ]


def _summary(summary: Summary) -> Child:
    survey = summary.survey
    published = summary.published
    languages = {entry["lang"] for entry in summary.run.manifest["files"] if entry["rows"]}
    tiles = [
        (numbers.count(survey.records), "records read"),
        (numbers.count(survey.kept), f"kept, {numbers.share(survey.kept, survey.records)} of them"),
        (numbers.compact(published.total), f"{summary.unit} published"),
        (numbers.count(published.percentile(50)), f"{summary.unit} in the median document"),
        (numbers.count(len(languages)), "languages kept"),
        (numbers.count(len(summary.run.manifest["files"])), "shards"),
    ]
    tile_row = tag("div", [_tile(big, small) for big, small in tiles], class_="tiles")
    found = [
        tag("li", tag("b", "Look at this: ") if f.level == "alert" else None, f.text, class_=f.level)
        for f in summary.findings
    ]
    return [
        tile_row,
        tag("ul", found, class_="findings") if found else tag("p", "Nothing unusual was found.", class_="hint"),
    ]


def _tile(big: str, small: str) -> Markup:
    return tag("div", tag("b", big), tag("span", small), class_="tile")


def _footer() -> Markup:
    text = (
        "Every count on this page is a count of committed rows. Shares “of remaining” are of the records that entered "
        "the stage. Characters and words are of the text after line edits; what ended before extraction has none."
    )
    return tag("footer", text)
