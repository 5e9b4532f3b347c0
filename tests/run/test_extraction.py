"""What extraction says of a page besides its text, through the whole job: stored, and redone only when it must be."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from pipeline import recipe
from pipeline.run import keys
from tests.run import runs

pytestmark = pytest.mark.usefixtures("spark")

STORY = " ".join(f"Sentence {i} tells of a river, a bridge and the people who cross it." for i in range(30))
PAGES = {
    "https://page.example/": f"<html><body><nav>Home About</nav><article><p>{STORY}</p></article></body></html>",
    "https://json.example/": "<html><body><div id=app></div><script type='application/ld+json'>"
    + json.dumps({"@type": "NewsArticle", "headline": "A story", "articleBody": STORY})
    + "</script></body></html>",
}


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "pages.warc.gz"
    path.write_bytes(b"".join(gzip.compress(runs.response(url, page.encode())) for url, page in PAGES.items()))
    return path


@pytest.mark.parametrize("engine", ["gristmill", "resiliparse"])
def test_confidence_source_and_visible_share_are_stored(engine: str, crawl: Path, tmp_path: Path) -> None:
    choice = ["--set", f"extract.engine={engine}", "--set", "dedup.exact=false", "--set", "dedup.near=false"]
    assert runs.curate([crawl], tmp_path / "run", *choice) == 0
    columns = ["url", "text", "text_source", "extractor", "extract_confidence", "visible_ratio", "mojibake_score"]
    rows = {row["url"]: row for row in runs.rows(tmp_path / "run", "records", columns)}
    page, from_json = rows["https://page.example/"], rows["https://json.example/"]
    assert page["extractor"] == engine
    assert (page["text_source"], page["mojibake_score"]) == ("page", 0)
    assert 0.9 < page["visible_ratio"] <= 1
    if engine == "gristmill":
        assert 0.5 < page["extract_confidence"] <= 1
        assert (from_json["text"], from_json["text_source"]) == (STORY, "json")
        assert from_json["extract_confidence"] is None
    else:
        assert page["extract_confidence"] is None
        assert from_json["text"] is None


def test_measuring_again_keeps_what_only_extraction_sees(crawl: Path, tmp_path: Path) -> None:
    columns = ["url", "extract_confidence", "visible_ratio", "text_source"]
    assert runs.curate([crawl], tmp_path / "run") == 0
    before = runs.rows(tmp_path / "run", "records", columns)
    assert runs.curate([crawl], tmp_path / "run", "--set", "dedup.seed=7") == 0
    assert runs.rows(tmp_path / "run", "records", columns) == before


def test_another_model_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(engine: str) -> str:
        return keys.stage_key("extract", recipe.load("minimal", [f"extract.engine={engine}"]))

    before = {engine: key(engine) for engine in ("gristmill", "resiliparse")}
    monkeypatch.setattr(keys, "_extraction_model", lambda: "another")
    assert key("gristmill") != before["gristmill"]
    assert key("resiliparse") == before["resiliparse"]
