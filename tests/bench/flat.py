"""Memory of one worker over many distinct pages (shared case 73).

    python -m tests.bench.flat [--pages 30000]

The task that makes `records/` runs here; its child is watched. Bar: after warm-up the child's resident memory grows by
less than 1 MB per 1,000 pages (least squares), and this process's too.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from pathlib import Path

import numpy as np
import psutil

from pipeline.annotate import Tools
from pipeline.crawl import sources
from pipeline.recipe import Recipe
from pipeline.run import tasks
from pipeline.run.inputs import PlannedInput
from tests.run.runs import response

BAR_MB = 1.0


def write_pages(path: Path, pages: int) -> None:
    random = np.random.default_rng(73)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(random.choice(letters, size=n)) for n in random.integers(2, 11, size=20_000)])
    with path.open("wb") as file:
        for number in range(pages):
            paragraphs = (" ".join(random.choice(words, 60)) for _ in range(int(random.integers(3, 30))))
            body = "".join(f"<p class='c{number}'>{text}.</p>\n" for text in paragraphs)
            html = f"<html><head><title>{number}</title></head><body><article>{body}</article></body></html>"
            file.write(gzip.compress(response(f"http://h{number % 977}.test/{number}", html.encode()), 1, mtime=0))


def resident_mb(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 1e6)


def slope(points: list[tuple[int, float]]) -> float:
    """MB per 1,000 pages over the last two thirds of the points."""
    late = np.array(points[len(points) // 3 :])
    return float(np.polyfit(late[:, 0] / 1000, late[:, 1], 1)[0])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=30_000)
    parser.add_argument("--toy", action="store_true", help="120 pages, without the bar")
    args = parser.parse_args(argv)
    pages = 120 if args.toy else args.pages
    tools = Tools(Recipe())
    tools.warm()
    own = psutil.Process()
    children: list[tuple[int, float]] = []
    parents: list[tuple[int, float]] = []
    pids = set()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "pages.warc.gz"
        write_pages(path, pages)
        file = sources.identify(str(path))
        planned = PlannedInput(file.input_id, file.uri, file.size, file.etag, path.name)
        task = tasks.PartTask(planned, tasks.Stretch(), "e", "m")
        count = 0
        for count, _ in enumerate(tasks._annotated(task, tools, {}), 1):
            if count % max(1, pages // 30) == 0 and count < pages:  # at the end the child is gone
                (child,) = own.children()
                pids.add(child.pid)
                children.append((count, resident_mb(child)))
                parents.append((count, resident_mb(own)))
    assert count == pages
    for (at, child_mb), (_, parent_mb) in zip(children, parents, strict=True):
        print(f"{at:7} pages: child {child_mb:7.1f} MB, parent {parent_mb:7.1f} MB")
    grows = slope(children), slope(parents)
    print(f"MB per 1,000 pages: child {grows[0]:+.3f}, parent {grows[1]:+.3f} (bar {BAR_MB}); {len(pids)} children")
    return 0 if args.toy or max(grows) < BAR_MB else 1


if __name__ == "__main__":
    sys.exit(main())
