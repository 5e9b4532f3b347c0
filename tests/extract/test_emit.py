"""Kept blocks as text: what stands on one line, what is set apart, what is written once."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.extract.emit import emit
from pipeline.extract.scan import scan


def text(html: str, *dropped: int) -> str:
    blocks = scan(html.encode())
    kept = np.ones(len(blocks.owner), np.bool_)
    kept[list(dropped)] = False
    return emit(blocks, kept)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("", ""),
        ("<h1>A</h1><p>b\n c<p>d<br>e", "A\nb c\nd\ne"),
        ("<ul><li>a<li>b<ul><li>c<ol><li>d</ol></ul>e<li>f</ul>g", "- a\n- b\n  - c\n    1. d\ne\n- f\ng"),
        ("<ol>" + "<li>a" * 10 + "</ol>b", "\n".join(f"{i}. a" for i in range(1, 11)) + "\nb"),
        ("<ol start=3><li>a<li value='17'>b<li><p>c</ol>", "3. a\n17. b\n18. c"),
        ("<ol start=99999999999999999999><li>a<li value=x>b</ol>", "- a\n- b"),
        ("<ol><li><div><p>by me</p><p>a comment</p></div></ol>", "- by me\na comment"),
        ("<ul><li><p>a</p><p>b</p><li><ul><li>c</ul></ul>", "- a\nb\n  - c"),
        ("<dl><dt>a<dd>b</dl>", "a\nb"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2 <b>3</b></table>", "a | b\n1 | 2 3"),
        ("<table><tr><td>a<td><p>b<p>c<br>d<td></table>e", "a | b c d\ne"),
        ("<table><tr><td>a<td>x <ul><li>b<li>c</ul></table>", "a | x b c"),
        ("<table><tr><td><p>a<p>b</table>", "a\nb"),
        ("<table><tr><td>a<td><p>b<p>c<p>d<p>e</table>", "a\nb\nc\nd\ne"),
        ("<table><tr><td>1<br>2<td><pre>a\n b</pre></table>", "1\n2\na\n b"),
        ("<table><tr><td>a<td><table><tr><td>b<td>c</table></table>", "a\nb | c"),
        ("<ul><li><table><tr><td>a<td>b</table></ul>", "a | b"),
        ("<table><tr><td>x<td><ul><li>a<li>b<li>c<li>d</ul></table>", "x\n- a\n- b\n- c\n- d"),
        ("<p>x</p><pre>\n\n  a\n\n    b\r\n</pre><p>y", "x\n  a\n\n    b\ny"),
        ("<pre><code><span>if</span> <span>x</span>:\n\ty</code></pre>", "if x:\n\ty"),
        ("&lt;b&gt; &amp;amp; &nbsp; x&#160;", "<b> &amp; x"),
        ("<p>&nGt;</p>" * 3, "\u226b\u20d2\n\u226b\u20d2\n\u226b\u20d2"),
    ],
)
def test_structure(html: str, expected: str) -> None:
    assert text(html) == expected


def test_dropped_blocks_leave_no_trace() -> None:
    assert text("<p>a<p>b<p>c", 1) == "a\nc"
    assert text("<ul><li>a<li>b<li>c</ul>", 0, 2) == "- b"
    assert text("<table><tr><td>a<td>b<td>c</table>", 1) == "a | c"
    assert text("<table><tr><td>a<td>b</table>", 1) == "a"
    assert text("<p>a", 0) == ""


def test_a_title_is_written_once() -> None:
    html = (
        "<title>Old roads - The Site</title><h1>Old roads</h1><p>Text.</p><h2 class=title>Old <i>roads</i></h2><p>End."
    )
    assert text(html) == "Old roads\nText.\nEnd."


def test_headings_that_are_no_titles_may_repeat() -> None:
    html = "<title>Old roads</title><h2>Example</h2><p>a<h2>Example</h2><p>b<p>Old roads<p>Old roads"
    assert text(html) == "Example\na\nExample\nb\nOld roads\nOld roads"


def test_absurd_nesting_of_lists_stays_in_bounds() -> None:
    html = "<ul><li>a" * 5000
    lines = text(html).split("\n")
    assert len(lines) == 5000
    assert max(map(len, lines)) < 40


def test_bytes_that_are_no_text_stay_in_bounds() -> None:
    blocks = scan(b"<p>a" + b"\xff" * 1000 + b"\xe6\xbc<p>b")
    assert emit(blocks, np.ones(2, np.bool_)) == "a" + "\ufffd" * 1002 + "\nb"
