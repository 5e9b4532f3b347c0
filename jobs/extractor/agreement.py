"""Main text for pages that nobody has marked: what two engines that share no code both find.

Of the unmarked pages of the training crawl, 688 of 1,009 are such pages. They are of other sites, languages and years
than the marked ones, and that is what they teach (tests/bench/extract.py --unmarked none).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from jobs.extractor.labels import overlap
from jobs.extractor.pages import Page
from pipeline.errors import Rejected
from pipeline.extract import extract
from pipeline.recipe import Extract

#: The first one's text is taken.
ENGINES = (Extract(engine="trafilatura"), Extract(engine="resiliparse"))
#: Least F1 of the engines' texts against each other
AGREEMENT = 0.9
SOURCE = "agreement"


def agreed(pages: Iterable[Page]) -> Iterator[Page]:
    """The pages on which the engines agree, marked with their text."""
    for page in pages:
        html = page.html.decode()
        try:
            text, other = (extract(html, page.url, engine).text for engine in ENGINES)
        except Rejected:
            continue
        if overlap(text, other)[2] >= AGREEMENT:
            yield replace(page, gold=text, source=SOURCE)
