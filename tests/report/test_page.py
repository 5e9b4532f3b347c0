from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pipeline.report import clusters, page
from pipeline.report.markup import Markup, crawl, jump, tag
from pipeline.report.reading import open_finished
from pipeline.report.summary import summarize
from tests.report.conftest import Written
from tests.report.synthetic import HOSTILE, write_run

SECTIONS = ["summary", "inputs", "funnel", "rules", "lengths", "sources", "duplicates", "samples", "run"]


class Outline(HTMLParser):
    """Elements and attributes of a page as a browser's tokenizer sees them, and its text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.depth: list[str] = []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))
        if name != "meta":
            self.depth.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.depth.pop() == name, f"</{name}> closes something else"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _outline(rendered: bytes) -> Outline:
    outline = Outline()
    outline.feed(rendered.decode())
    outline.close()
    assert outline.depth == []
    return outline


@pytest.fixture(scope="module")
def evil(hostile: Written) -> bytes:
    return page.render(hostile.summary)


def test_nothing_from_the_crawl_becomes_markup(evil: bytes) -> None:
    outline = _outline(evil)
    for name, attributes in outline.elements:
        assert name not in ("script", "img", "iframe", "object", "embed", "link", "form", "base", "b0ld")
        for key, value in attributes.items():
            assert not key.startswith("on"), (name, key)
            assert key not in ("src", "srcdoc", "action", "formaction", "xlink:href")
            if key == "href":
                assert name == "a"
                assert re.fullmatch("#[a-z]+", value or "")
    # the hostile texts are there to be read, letter by letter
    text = "".join(outline.text)
    for hostile_text in HOSTILE[:5]:
        assert hostile_text in text


def test_the_page_may_neither_run_nor_load_anything(evil: bytes) -> None:
    policies = [a["content"] for n, a in _outline(evil).elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    assert policies[0] is not None
    assert policies[0].startswith("default-src 'none'")
    assert "script" not in policies[0]
    style = re.search("<style>(.*?)</style>", evil.decode(), re.S)
    assert style
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_no_control_or_direction_character_gets_through(evil: bytes) -> None:
    text = html.unescape(evil.decode())
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)
    assert "\u241b[31mred" in text


def test_markup_refuses_what_could_run() -> None:
    assert tag("p", "<b>&\"'", title='"x') == '<p title="&quot;x">&lt;b&gt;&amp;&quot;&#x27;</p>'
    assert tag("p", Markup("<i></i>"), None, ["a", 1]) == "<p><i></i>a1</p>"
    assert crawl("</bdi><script>") == '<bdi dir="auto">&lt;/bdi&gt;&lt;script&gt;</bdi>'
    for bad in ("script", "a", "p onclick=x", "img"):
        with pytest.raises(ValueError, match="not an element"):
            tag(bad)
    for attribute in ("onclick", "href", "src", "on_load"):
        with pytest.raises(ValueError, match="not an attribute"):
            tag("p", **{attribute: "x"})
    with pytest.raises(ValueError, match="not a section"):
        jump('x" onclick="', "x")


def test_every_section_is_there_and_linked(plain: Written) -> None:
    outline = _outline(page.render(plain.summary))
    assert [a["id"] for n, a in outline.elements if n == "section"] == SECTIONS
    assert [a["href"] for n, a in outline.elements if n == "a"] == [f"#{name}" for name in SECTIONS]


def test_the_same_run_gives_the_same_bytes_anywhere(plain: Written, tmp_path: Path) -> None:
    write_run(tmp_path / "elsewhere", parts=4)
    other = summarize(open_finished(str(tmp_path / "elsewhere")))
    assert page.render(other) == page.render(plain.summary)


def test_ten_samples_of_each_reason(plain: Written) -> None:
    samples = plain.summary.samples
    for key, entries in samples.items():
        assert len(entries) == min(10, plain.summary.survey.reasons[key][0])
    assert set(samples) == set(plain.summary.survey.reasons)
    short = samples["quality", "gopher_short_doc"]
    assert all(entry.record["gopher_words"] < 50 for entry in short)
    failed = next(c for c in short[0].checks if c.rule == "gopher_short_doc")
    assert failed.outcome == "fail"
    assert failed.margin == short[0].record["gopher_words"] - 50
    near = samples["dedup", "near"][0]
    assert near.duplicate is not None
    assert near.duplicate["record_id"] == near.record["record_id"]
    text = "".join(_outline(page.render(plain.summary)).text)
    assert f"{near.duplicate['kept_id']} was kept instead" in text


def test_size_is_bounded(tmp_path: Path, plain: Written) -> None:
    write_run(tmp_path / "large", rows=1500)
    large = page.render(summarize(open_finished(str(tmp_path / "large"))))
    assert len(large) < 1.6 * len(page.render(plain.summary))
    assert len(large) < 1_000_000


def test_tokens_show_where_there_are_some(tmp_path: Path, plain: Written) -> None:
    write_run(tmp_path / "run", tokens=True)
    summary = summarize(open_finished(str(tmp_path / "run")))
    kept_words = sum(r["n_words"] for r, v in zip(plain.truth.records, plain.truth.verdicts, strict=True) if v["kept"])
    assert summary.tokens == 2 * kept_words
    text = "".join(_outline(page.render(summary)).text)
    assert f"{2 * kept_words:,} tokens" in text
    assert "tokens published" in text
    assert plain.summary.tokens is None


@pytest.mark.parametrize(
    ("bands", "rows", "expected"),
    [
        (14, 8, [0.053, 0.211, 0.565, 0.772, 0.924, 0.988]),
        (26, 11, [0.013, 0.090, 0.405, 0.674, 0.903, 0.991]),
        (20, 5, [0.470, 0.802, 0.975, 0.996, 1.0, 1.0]),
    ],
)
def test_s_curve_has_the_published_values(bands: int, rows: int, expected: list[float]) -> None:
    found = [clusters.caught(s, bands, rows) for s in (0.5, 0.6, 0.7, 0.75, 0.8, 0.85)]
    assert found == pytest.approx(expected, abs=6e-4)


def test_the_curve_of_the_recipe_is_on_the_page(plain: Written) -> None:
    text = "".join(_outline(page.render(plain.summary)).text)
    assert "14 bands × 8 rows" in text
    assert "0.924" in text
