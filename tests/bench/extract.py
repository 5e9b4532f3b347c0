"""How good the engines' texts are and how fast they come, on the same pages in one run.

    python -m tests.bench.extract --work SCRATCH     # all of it, about half an hour the first time
    python -m tests.bench.extract --toy              # on made-up pages, seconds

Score: word-multiset F1 against text marked by hand (../shared/tools/score_extraction.py), mean over pages; a page
without text scores 0. Ours is judged by models that have not seen the page's site: five folds, split by registered
domain; token scores, both stages and the cut are fitted anew for each. The shipped model has seen all these pages.
Pages without gold on which both libraries agree are learnt from too; `--unmarked none` shows what they bring.

Across sources: the model is fitted on one collection alone and judged on the others, which were gathered and marked by
other people with other habits. What it loses there against the folds is what it owes to pages like the test's. From
waddle-daniel, titles and articles only, nobody learns that WCXB counts comments, products and listings as main text, so
the bar is for the other way.

`precision`: as `extract.favor = "precision"` does it. Its floor of probability is one number for all, not chosen on
these pages.

Speed: CPU time from the HTTP response in memory to the finished text, page by page, the engines in turn on each page.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import sys
import tempfile
import time
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean

import numpy as np

from jobs.extractor import agreement, labelling, labels, model_file
from jobs.extractor.pages import Page, read
from jobs.extractor.training import Learner, Settings
from pipeline import recipe
from pipeline.crawl import warc
from pipeline.crawl.decode import decode
from pipeline.errors import Rejected
from pipeline.extract import extract
from pipeline.extract.emit import emit
from pipeline.extract.gristmill import PRECISION_FLOOR, selected
from pipeline.extract.model import predict
from pipeline.extract.tidy import tidy

PROJECT = Path(__file__).resolve().parents[2]
PAGES = PROJECT.parent / "shared" / "data" / "crawl"
SCORER = PROJECT.parent / "shared" / "tools" / "score_extraction.py"
BASELINES = ("trafilatura", "resiliparse")
OURS = "gristmill"
BAR, STRETCH = 0.045, 0.06  #: F1 above trafilatura's
FAST, TIMES = 800, 20  #: pages a second and core, or this many times trafilatura's
#: F1 below trafilatura's that `precision` may lose on this collection when it was not fitted on it
ACROSS, ACROSS_TO = 0.01, "waddle-daniel"
BANDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  #: of confidence
FEWEST = 15  #: groups of fewer pages are not shown

Score = tuple[float, float, float]


@dataclass
class Contender:
    name: str
    scores: dict[str, Score] = field(default_factory=dict)  #: by URL; a page that is not here is not judged
    seconds: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, default=PAGES, help="folder of .warc.gz files and gold.parquet")
    parser.add_argument("--work", type=Path, help="keep what was fitted here; same pages, code and settings: read back")
    parser.add_argument("--limit", type=int, help="only the first N pages with gold")
    parser.add_argument("--unmarked", choices=("agreement", "none"), default="agreement",
                        help="what ours learns from pages without gold")  # fmt: skip
    parser.add_argument("--toy", action="store_true", help="made-up pages and small models")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as scratch:
        work: Path = args.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        folder, settings = args.pages, Settings()
        if args.toy:
            from tests.extract.made_pages import made, write

            folder = Path(scratch) / "pages"
            write(made(48), folder, made(6, seed=2))
            settings = replace(settings, first=replace(settings.first, trees=15, smallest_leaf=5), n_folds=3,
                               second=replace(settings.second, trees=8, smallest_leaf=5), min_sites=2)  # fmt: skip
        elif not folder.is_dir():
            raise SystemExit(f"{folder} is not there: --pages says where, --toy needs none")
        good = bench(folder, work, settings, args.limit, args.unmarked == "agreement")
        return 0 if good or args.toy or args.limit else 1


def bench(folder: Path, work: Path, settings: Settings, limit: int | None, with_unmarked: bool) -> bool:
    """Print it all; whether every bar is met."""
    found = read(folder)
    pages = found.gold[:limit]
    score = scorer()
    more = list(agreement.agreed(found.unmarked)) if with_unmarked else []
    print(f"{len(pages)} pages with gold; {len(found.missing)} gold texts without a readable page are left out")
    print(f"ours learns from {len(more)} of {len(found.unmarked)} pages without gold as well")
    contenders = engines(folder, pages, score)
    held = HeldOut(pages, more, settings, work)
    balanced, precise = Contender("ours, folds"), Contender("ours, folds, precision")
    for page, p in held.out_of_fold():
        balanced.scores[page.url] = judge(page, p, 0.0, score)
        precise.scores[page.url] = judge(page, p, PRECISION_FLOOR, score)
    show_f1(pages, [*contenders[:2], balanced, precise, contenders[2]])
    show_calibration(held, balanced)
    show_speed(contenders)
    good = verdict(contenders, balanced)
    print(f"\nAcross sources ({__doc__.split('Across sources: ')[1].split('`precision`')[0].strip()})")
    for source in sorted({page.source for page in pages}):
        own = [page for page in pages if page.source == source]
        others = [page for page in pages if page.source != source]
        if len(own) < 3 * FEWEST // 2 or not others:
            continue
        alone = HeldOut(own, more, settings, work)
        good &= show_across(source, alone, others, contenders[:2], score)
    return good


class HeldOut:
    """Models of some pages and `more` of which nobody knows the main text, fitted when asked for.

    What they say of a page is kept in `work`.
    """

    def __init__(self, pages: list[Page], more: list[Page], settings: Settings, work: Path) -> None:
        self.pages, self.more, self.work = pages, more, work
        urls = "\n".join(page.url for page in [*pages, *more])
        key = f"{model_file.code_digest()} {settings} {urls}".encode()
        self._key = hashlib.sha256(key).hexdigest()[:16]
        self._settings = settings
        self._learner: Learner | None = None

    @property
    def learner(self) -> Learner:
        if self._learner is None:
            self._learner = Learner(labelling.label([*self.pages, *self.more]), self._settings)
        return self._learner

    def out_of_fold(self) -> Iterator[tuple[Page, np.ndarray]]:
        def made() -> dict[str, np.ndarray]:
            named = zip(self.learner.pages, self.learner.held_out(), strict=True)
            return {page.url: p for page, p in named}

        known = self._kept("folds", made)
        for page in self.pages:
            yield page, known.get(page.url, np.empty(0, np.float32))

    def on_others(self, others: list[Page]) -> Iterator[tuple[Page, np.ndarray]]:
        def made() -> dict[str, np.ndarray]:
            model = self.learner.model()
            return {page.url: predict(model, page.blocks) for page in others}

        known = self._kept("others", made)
        for page in others:
            yield page, known[page.url]

    def _kept(self, name: str, made: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        path = self.work / f"{name}-{self._key}.npz"
        if not path.is_file():
            begin = time.perf_counter()
            np.savez(path, **made())
            print(f"[fitted in {time.perf_counter() - begin:.0f} s: {path.name}]", flush=True)
        with np.load(path) as stored:
            return dict(stored)


def judge(page: Page, p: np.ndarray, floor: float, score: Callable[[str, str], Score]) -> Score:
    """The score of what is kept of a page at these probabilities."""
    blocks = page.blocks
    if len(p) != len(blocks.owner):
        return 0.0, 0.0, 0.0
    kept, _ = selected(blocks, p, floor, recipe.Extract())
    return score(tidy(emit(blocks, kept)), page.gold or "")


def show_calibration(held: HeldOut, ours: Contender) -> None:
    """What the model expects of its cut against what it gets."""
    bands: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for page, p in held.out_of_fold():
        if len(p):
            _, confidence = selected(page.blocks, p, 0.0, recipe.Extract())
            bands[bisect(BANDS, confidence)].append((confidence, ours.scores[page.url][2]))
    print(f"\n{'confidence, out of fold':28}{'pages':>6}{'mean':>9}{'F1':>9}")
    for band, found in sorted(bands.items()):
        low, high = (0.0, *BANDS)[band], (*BANDS, 1.0)[band]
        confidence, f1 = (mean(one[i] for one in found) for i in (0, 1))
        print(f"{low:4.2f} to {high:4.2f}{'':16}{len(found):6}{confidence:9.3f}{f1:9.3f}")


def engines(folder: Path, pages: list[Page], score: Callable[[str, str], Score]) -> list[Contender]:
    """Each engine's scores and CPU time, the shipped model's among them."""
    contenders = [Contender(name) for name in (*BASELINES, OURS)]
    gold = {page.url: page.gold or "" for page in pages}
    settings = {c.name: recipe.Extract().model_copy(update={"engine": c.name}) for c in contenders}
    first = True
    for record in responses(folder):
        wanted = gold.pop(record.url or "", None)
        if wanted is None:
            continue
        if first:  # what is loaded and compiled once is not a page's
            for contender in contenders:
                text_of(record, settings[contender.name])
            first = False
        for contender in contenders:
            begin = time.process_time()
            text = text_of(record, settings[contender.name])
            contender.seconds += time.process_time() - begin
            contender.scores[record.url or ""] = score(text, wanted)
    for contender in contenders:
        contender.name = {OURS: "ours, shipped (has seen them)"}.get(contender.name, contender.name)
    return contenders


def text_of(record: warc.Record, settings: recipe.Extract) -> str:
    try:
        return extract(decode(record).html, record.url, settings).text
    except Rejected:
        return ""


def responses(folder: Path) -> Iterator[warc.Record]:
    for path in sorted(folder.glob("*.warc.gz")):
        with path.open("rb") as stream:
            for event in warc.read(stream):
                if isinstance(event, warc.Record) and event.warc_type == "response":
                    yield event


def scorer() -> Callable[[str, str], Score]:
    """The scorer's own function where its file is there; what training aligns by is the same by definition."""
    if not SCORER.is_file():
        return labels.overlap
    spec = importlib.util.spec_from_file_location("score_extraction", SCORER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[str, str], Score] = module.overlap
    return found


def groups_of(pages: list[Page]) -> dict[str, list[str]]:
    """URLs by group: all, then source, language and page type."""
    groups: dict[str, list[str]] = defaultdict(list)
    for page in pages:
        for key in ("all", f"source {page.source}", f"lang {page.lang}", f"type {page.page_type}"):
            groups[key].append(page.url)
    order = ("all", "sour", "lang", "type")
    kept = {key: urls for key, urls in groups.items() if len(urls) >= FEWEST and not key.endswith(" ")}
    return dict(sorted(kept.items(), key=lambda item: (order.index(item[0][:4].strip()), item[0])))


def average(contender: Contender, urls: list[str], part: int) -> float:
    return mean(contender.scores.get(url, (0.0, 0.0, 0.0))[part] for url in urls)


def show_f1(pages: list[Page], contenders: list[Contender]) -> None:
    for part, name in ((2, "F1"), (0, "precision"), (1, "recall")):
        print(f"\n{name:28}{'pages':>6}" + "".join(f"{c.name:>{max(len(c.name), 9) + 2}}" for c in contenders))
        for group, urls in groups_of(pages).items():
            cells = (f"{average(c, urls, part):{max(len(c.name), 9) + 2}.3f}" for c in contenders)
            print(f"{group:28}{len(urls):6}" + "".join(cells))


def show_speed(contenders: list[Contender]) -> None:
    print(f"\n{'speed':32}{'pages/s/core':>14}{'ms/page':>10}{'x trafilatura':>15}")
    slow = contenders[0].seconds / len(contenders[0].scores)
    for contender in contenders:
        each = contender.seconds / len(contender.scores)
        print(f"{contender.name:32}{1 / each:14.0f}{1000 * each:10.3f}{slow / each:15.1f}")


def verdict(contenders: list[Contender], ours: Contender) -> bool:
    urls = list(ours.scores)
    gain = average(ours, urls, 2) - average(contenders[0], urls, 2)
    each = [c.seconds / len(c.scores) for c in contenders]
    quick = 1 / each[2] >= FAST or each[0] / each[2] >= TIMES
    print(f"\nF1 above trafilatura's: {gain:+.4f} (bar {BAR}, stretch {STRETCH}): {met(gain >= BAR)}")
    print(f"{FAST} pages/s/core, or {TIMES} times trafilatura: {met(quick)}")
    return gain >= BAR and quick


def show_across(
    source: str, alone: HeldOut, others: list[Page], baselines: list[Contender], score: Callable[[str, str], Score]
) -> bool:
    balanced, precise = Contender("balanced"), Contender("precision")
    for page, p in alone.on_others(others):
        balanced.scores[page.url] = judge(page, p, 0.0, score)
        precise.scores[page.url] = judge(page, p, PRECISION_FLOOR, score)
    print(f"\nfitted on {source} alone ({len(alone.pages)} pages with gold)")
    show_f1(others, [*baselines, balanced, precise])
    good = True
    for group, urls in groups_of(others).items():
        if group.startswith("source"):
            loss = average(baselines[0], urls, 2) - average(precise, urls, 2)
            said = f"`precision` on {group}, never seen: {-loss:+.4f} against trafilatura"
            if group == f"source {ACROSS_TO}":
                good &= loss <= ACROSS
                said += f" (bar -{ACROSS}): {met(loss <= ACROSS)}"
            print(said)
    return good


def met(good: bool) -> str:
    return "met" if good else "NOT MET"


if __name__ == "__main__":
    sys.exit(main())
