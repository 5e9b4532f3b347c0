"""Earlier runs that a run was compared with (`--against`): what was removed for them, and their folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pipeline.errors import GristmillError
from pipeline.report import numbers
from pipeline.report.reading import Run, open_finished

KINDS = ("exact", "near", "near_estimated")


def folder(run: Run, run_id: str) -> str | None:
    """Where the earlier run was when this one was made."""
    known: Mapping[str, str] = {one["run_id"]: one["uri"] for one in run.document.get("against") or ()}
    return known.get(run_id)


def reopen(run: Run, run_id: str) -> Run | None:
    """The earlier run, or None where its folder is gone or holds another state now."""
    uri = folder(run, run_id)
    if uri is None:
        return None
    try:
        earlier = open_finished(uri)
    except GristmillError:
        return None
    return earlier if earlier.document.get("run_id") == run_id else None


def counted(run: Run, removed: Mapping[str, Counter[str]]) -> list[dict[str, Any]]:
    """The earlier runs of run.json with what `duplicates/` say was removed for each (`removed`: run id -> kinds)."""
    known = run.document.get("against") or []
    told = [{**one, "removed": dict(sorted(removed.get(one["run_id"], {}).items()))} for one in known]
    strangers = sorted(set(removed) - {one["run_id"] for one in told})
    return told + [{"uri": None, "run_id": one, "removed": dict(sorted(removed[one].items()))} for one in strangers]


def rows(against: list[dict[str, Any]]) -> list[list[str]]:
    """Cells of a table with one line per earlier run; the first row is the header."""
    head = ["earlier run", "documents", *(kind.replace("_", " ") for kind in KINDS), "compared by", "folder"]
    lines = [head]
    for one in against:
        error = one.get("standard_error")
        by = "shingles" if one.get("shingles") else "signatures" + (f", ± {error:g}" if error else "")
        removed = (numbers.count(one["removed"].get(kind, 0)) for kind in KINDS)
        where = numbers.printable(one["uri"] or numbers.NONE)
        lines.append([one["run_id"], numbers.count(one.get("documents")), *removed, by, where])
    return lines


def as_text(against: list[dict[str, Any]]) -> str:
    return numbers.table(rows(against), "<>>>><<")
