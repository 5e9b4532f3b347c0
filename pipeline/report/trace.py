"""One record's way through a run: where it came from, every signal and rule, its duplicates, its shard and row."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from pipeline.errors import GristmillError
from pipeline.recipe import Edit
from pipeline.report import clusters, contamination, elsewhere, lines, numbers
from pipeline.report.beside import beside
from pipeline.report.checks import Check, check_all
from pipeline.report.numbers import printable
from pipeline.report.reading import Run
from pipeline.report.rows import Place, fetch, find, find_values
from pipeline.signals import SIGNALS

_RECORD_ID = re.compile(r"[0-9a-f]{32}")
#: Duplicates whose addresses are looked up, and addresses of one host that a hint is chosen from.
_FAVOURED = 20
_CANDIDATES = 5000


@dataclass(frozen=True)
class Trace:
    """`record`: its row in `records/` without the signature; `verdict`: its row in `verdicts/`.

    `contaminated`: its rows in `contaminated/`; `ngram`: the words that one match takes. `removed_for`: its row in
    `duplicates/` with `kept_url`, if it was removed there. `favoured`: the first of the `favoured_count` removed for
    its sake, with `url`. `shard`: {path, row}, if it is published. `lines`: those that
    other documents of the run hold, where the recipe asks and the text is stored. `survivor`:
    whom it was removed for: `folder` of its run (None: this one), `there` (False: that run is not there any more),
    `url`, `text`.
    """

    record: dict[str, Any]
    verdict: dict[str, Any]
    checks: list[Check]
    contaminated: list[dict[str, Any]]
    ngram: int
    removed_for: dict[str, Any] | None
    favoured: list[dict[str, Any]]
    favoured_count: int
    shard: dict[str, Any] | None
    lines: list[lines.RepeatedLine]
    survivor: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        facts = {name: value for name, value in self.record.items() if name not in _SIGNAL_NAMES}
        return {
            "record": facts,
            "verdict": self.verdict,
            "signals": {name: self.record.get(name) for name in _SIGNAL_NAMES},
            "rules": [check.as_json() for check in self.checks],
            "contaminated": self.contaminated,
            "removed_for": self.removed_for,
            "survivor": self.survivor,
            "kept_instead_of": self.favoured,
            "kept_instead_of_count": self.favoured_count,
            "shard": self.shard,
            "repeated_lines": [line.as_json() for line in self.lines],
        }


_SIGNAL_NAMES = tuple(s.name for s in SIGNALS)
_COLUMNS_LEFT_OUT = ("signature",)


#: (text, the recipe's edits) -> what the line rules leave: pipeline.quality.edits.edit
LineRules: TypeAlias = Callable[[str, Edit], str]


def trace(run: Run, wanted: str, edit: LineRules) -> list[Trace]:
    """The records with this id or address, in crawl order (a URL may have several captures).

    Raises GristmillError, with the nearest address where one is near, if there is none.
    """
    if _RECORD_ID.fullmatch(wanted):
        places = find(run, [wanted])
        if not places:
            raise GristmillError(f"no record of this run has the id {wanted}")
    else:
        places = find_values(run, "url", {wanted})
        if not places:
            raise GristmillError(f"no record of this run has the address {printable(wanted)}{_hint(run, wanted)}")
    return [_trace(run, record_id, place, edit) for record_id, place in sorted(places.items(), key=lambda i: i[1])]


def _trace(run: Run, record_id: str, place: Place, edit: LineRules) -> Trace:
    here = {record_id: place}
    record = fetch(run, here)[record_id]
    for name in _COLUMNS_LEFT_OUT:
        record.pop(name, None)
    verdict = fetch(run, here, dataset="verdicts")[record_id]
    removed, favoured = clusters.of_record(run, record_id)
    count = len(favoured)
    favoured = favoured[:_FAVOURED]
    urls = fetch(run, find(run, [row["record_id"] for row in favoured]), ["record_id", "url"])
    survivor = _survivor(run, removed["kept_id"], removed["kept_run"]) if removed else None
    if removed:
        removed = {**removed, "kept_url": survivor["url"] if survivor else None}
    return Trace(
        record=record,
        verdict=verdict,
        checks=check_all(record, verdict["failed_rules"] or (), run.recipe)
        if record.get("n_words") is not None
        else [],
        contaminated=contamination.of_places(run, here).get(record_id, []),
        ngram=run.recipe.decontaminate.ngram,
        removed_for=removed,
        favoured=[{**row, "url": urls.get(row["record_id"], {}).get("url")} for row in favoured],
        favoured_count=count,
        shard=_shard(run, record_id, record.get("lang")) if verdict["kept"] else None,
        lines=lines.of_record(run, record_id, place, edit(record["text"], run.recipe.edit)) if record["text"] else [],
        survivor=survivor,
    )


def _survivor(run: Run, kept_id: str, kept_run: str | None) -> dict[str, Any]:
    """The document that another one was removed for, in this run or in an earlier one."""
    home = run if kept_run is None else elsewhere.reopen(run, kept_run)
    found = fetch(home, find(home, [kept_id]), ["record_id", "url", "text", "edited"]) if home is not None else {}
    row = found.get(kept_id, {})
    return {
        "folder": None if kept_run is None else elsewhere.folder(run, kept_run),
        "there": home is not None,
        "url": row.get("url"),
        "text": row.get("text") if row.get("edited") is None else row["edited"],
    }


def _shard(run: Run, record_id: str, lang: str | None) -> dict[str, Any] | None:
    """Shards are equal ranges of the id's hash, so the likely one is looked at first, then the others."""
    paths = [f"shards/{entry['path']}" for entry in run.manifest["files"] if entry["lang"] == (lang or "und")]
    if not paths:
        paths = run.parts("shards")
    likely = (xxhash.xxh3_64_intdigest(record_id.encode()) * len(paths)) >> 64
    for path in [paths[likely], *paths[:likely], *paths[likely + 1 :]]:
        first_row = 0
        with run.open_part(path) as file:
            for batch in file.iter_batches(columns=["record_id"]):
                hits = np.flatnonzero(np.asarray(pc.equal(batch["record_id"], record_id)))
                if hits.size:
                    return {"path": path, "row": first_row + int(hits[0])}
                first_row += len(batch)
    return None


def _hint(run: Run, wanted: str) -> str:
    """' (nearest: URL)', or what is known of its host."""
    host = _host(wanted)
    candidates: set[str] = set()
    hosts: set[str] = set()
    for batch in run.rows("records", ["url", "host"]):
        names = pc.unique(batch["host"]).drop_null().to_pylist()
        if len(hosts) < _CANDIDATES:
            hosts.update(names)
        same = [name for name in names if _bare(name) == host]
        if same and len(candidates) < _CANDIDATES:
            rows = batch.filter(pc.is_in(batch["host"], value_set=pa.array(same, pa.string())))
            candidates.update(url for url in rows["url"].to_pylist() if url)
    if candidates:
        bare = {_bare(url.split("://", 1)[-1]): url for url in sorted(candidates, reverse=True)}
        near = difflib.get_close_matches(_bare(wanted.split("://", 1)[-1]), sorted(bare), n=1, cutoff=0.0)
        return f" (nearest: {printable(bare[near[0]])})"
    near = difflib.get_close_matches(host, sorted(hosts), n=1, cutoff=0.6)
    return f", nor any page of its host (nearest host: {printable(near[0])})" if near else ", nor any page of its host"


def _host(url: str) -> str:
    try:
        return _bare(urlsplit(url if "://" in url else f"//{url}").hostname or "")
    except ValueError:
        return ""


def _bare(text: str) -> str:
    return text.lower().removeprefix("www.").rstrip("/")


def as_text(one: Trace) -> str:
    """One record's way, for a terminal."""
    record, verdict = one.record, one.verdict
    blocks = [_heading(record, verdict), _facts(record)]
    text = record["text"] if record["edited"] is None else record["edited"]
    for row in one.contaminated:
        blocks.append(f"{contamination.line(row, one.ngram)}\n{contamination.quote(row, text)}")
    if one.removed_for:
        row = one.removed_for
        where = f" of run {row['kept_run']}" if row["kept_run"] else ""
        address = f", {printable(row['kept_url'])}" if row["kept_url"] else ""
        similarity = "" if row["similarity"] is None else f", similarity {row['similarity']:.4f}"
        kind = str(row["kind"]).replace("_", " ")
        text = f"removed as {kind} duplicate of {row['kept_id']}{where}{address}{similarity}"
        blocks.append(f"{text}; cluster of {row['cluster_size']:,}")
        blocks += _side_by_side(one)
    if one.favoured:
        rows = [["kept instead of", "kind", "similarity", "address"]]
        for row in one.favoured:
            similarity = numbers.NONE if row["similarity"] is None else f"{row['similarity']:.4f}"
            rows.append([row["record_id"], row["kind"], similarity, printable(row["url"] or "")])
        more = one.favoured_count - len(one.favoured)
        blocks.append(numbers.table(rows, "<<><") + (f"\n… and {more:,} more" if more > 0 else ""))
    if one.shard:
        blocks.append(f"published in {one.shard['path']}, row {one.shard['row']:,}")
    if one.lines:
        blocks.append(lines.as_text(one.lines))
    if one.checks:
        rows = [["rule", "signal", "value", "keeps", "result", "margin"]]
        for check in one.checks:
            value = check.value if isinstance(check.value, str) else numbers.value(check.value)
            margin = numbers.NONE if check.margin is None else numbers.value(check.margin)
            sign = {"fail": "FAIL", "pass": "pass", "not applicable": "not applicable"}[check.outcome]
            rows.append([check.rule, check.signal, printable(value), check.range, sign, margin])
        blocks.append(numbers.table(rows, "<<><<>"))
        rows = [["signal", "value", "meaning"]]
        rows += [[s.name, numbers.value(record.get(s.name)), f"{s.meaning} ({s.basis})"] for s in SIGNALS]
        blocks.append(numbers.table(rows, "<><"))
    return "\n\n".join(blocks)


def _side_by_side(one: Trace) -> list[str]:
    """Where the survivor is, if in another run, and both texts."""
    assert one.survivor is not None
    blocks = []
    if one.removed_for and one.removed_for["kept_run"]:
        where = numbers.printable(one.survivor["folder"] or "a folder that run.json does not name")
        lost = "" if one.survivor["there"] else " (that run is not there any more)"
        blocks.append(f"the survivor is in {where}{lost}")
    text = one.record["text"] if one.record["edited"] is None else one.record["edited"]
    if text and one.survivor["text"]:
        blocks.append(beside(text, one.survivor["text"], ("this text", "the survivor's")))
    return blocks


def _heading(record: dict[str, Any], verdict: dict[str, Any]) -> str:
    result = "kept" if verdict["kept"] else f"rejected: {verdict['stage']}/{verdict['reason']}"
    lines = [printable(record["url"] or "no address"), f"record {record['record_id']}  {result}"]
    if record["detail"]:
        lines.append(printable(record["detail"]))
    others = [rule for rule in verdict["failed_rules"] or () if rule != verdict["reason"]]
    if others:
        lines.append(f"fails as well: {', '.join(others)}")
    return "\n".join(lines)


def _facts(record: dict[str, Any]) -> str:
    rows = []
    for label, text in (
        ("title", record["title"]),
        ("captured", record["warc_date"]),
        ("from", f"{record['warc_file']} at byte {numbers.count(record['warc_offset'])}, record {record['ordinal']}"),
        (
            "type",
            " ".join(str(x) for x in (record["warc_type"], record["http_status"], record["mime"]) if x is not None),
        ),
        ("charset", f"{record['charset']} (by {record['charset_source']})" if record["charset"] else None),
        ("size", f"{numbers.count(record['html_bytes'])} bytes" if record["html_bytes"] is not None else None),
        ("extractor", record["extractor"]),
        ("language", _language(record)),
        ("text", numbers.excerpt(printable(record["text"]), 300) if record["text"] else None),
        ("edited", numbers.excerpt(printable(record["edited"]), 300) if record["edited"] is not None else None),
    ):
        if text:
            rows.append([label, printable(text)])
    return numbers.table(rows, "<<", header=False)


def _language(record: dict[str, Any]) -> str | None:
    if record["lang"] is None:
        return None
    score = "without a score" if record["lang_score"] is None else f"score {numbers.value(record['lang_score'])}"
    return f"{record['lang']}, {score}"
