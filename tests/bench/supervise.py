"""What supervision costs: reading, decoding and resiliparse on the same file, inline and in a watched child, in turns.

python -m tests.bench.supervise FILE.warc.gz [PAIRS]
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from pipeline.crawl.decode import PageRejected, decode
from pipeline.crawl.supervise import supervised
from pipeline.crawl.warc import Event, Record, read
from pipeline.extract import extract
from pipeline.recipe import Extract

Key = tuple[int, int, int]
SETTINGS = Extract(engine="resiliparse")


def open_items(path: str) -> Callable[[Key | None], Iterator[tuple[Key, Event]]]:
    def items(after: Key | None) -> Iterator[tuple[Key, Event]]:
        ordinal, offset, first = after or (-1, 0, 0)
        with open(path, "rb", buffering=0) as stream:
            stream.seek(offset)
            for event in read(stream, start_offset=offset, start_ordinal=first):
                if event.ordinal > ordinal:
                    yield (event.ordinal, event.offset, event.first_ordinal), event

    return items


def handle(event: Event) -> dict[str, Any] | None:
    if not isinstance(event, Record):
        return None
    try:
        page = decode(event)
        text = extract(page.html, page.url, SETTINGS).text
    except PageRejected as rejected:
        return {"url": event.url, "reason": rejected.reason}
    except Exception as error:
        return {"url": event.url, "reason": str(error)}
    return {"url": event.url, "charset": page.charset, "text": text, **{f"signal_{i}": i * 0.5 for i in range(60)}}


def cpu() -> float:
    return sum(
        u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def measure(run: Callable[[], int]) -> tuple[float, float, int]:
    wall, used = time.perf_counter(), cpu()
    count = run()
    return time.perf_counter() - wall, cpu() - used, count


def main(path: str, pairs: int) -> None:
    items = open_items(path)

    def inline() -> int:
        return sum(1 for _, event in items(None) if (handle(event), 1)[1])

    def watched() -> int:
        return sum(
            1 for outcome in supervised(items, handle, cpu_seconds=10, memory_mib=900) if outcome.verdict == "ok"
        )

    inline()
    walls, cpus = [], []
    for turn in range(pairs):
        first, second = (inline, watched) if turn % 2 else (watched, inline)
        results = {first: measure(first), second: measure(second)}
        (wall, used, count), (base_wall, base_used, base_count) = results[watched], results[inline]
        assert count == base_count
        walls.append(wall / base_wall - 1)
        cpus.append(used / base_used - 1)
        print(f"inline {base_wall:.2f} s, CPU {base_used:.2f} s; watched {wall:.2f} s, CPU {used:.2f} s")
    print(f"supervision: {statistics.median(walls):+.1%} wall, {statistics.median(cpus):+.1%} CPU; {pairs} pairs")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7)
