"""Mutated crawl files, and mutated pages inside sound ones, through the task that makes `records/`.

    python -m tests.bench.fuzz_read [--seconds 600] [--seed N]

No file may crash the reader, hang it or put its accounts out of balance, and no page may cost its process more than its
limits. The first file that does is written to `fuzz-SEED-NUMBER.warc` and named.
"""

from __future__ import annotations

import argparse
import gzip
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import zstandard

from pipeline.annotate import warm
from pipeline.crawl import sources
from pipeline.recipe import Recipe
from pipeline.run.inputs import PlannedInput
from pipeline.run.tasks import Failed, PartTask, Stretch, make_part
from pipeline.storage import RowReader, Storage, open_run
from tests.crawl.archives import http, members, page, record, ten

#: CPU seconds of this process and its children for one small file; a hang is far beyond.
BAR_SECONDS = 10
TOKENS = (
    b"WARC/1.0\r\n", b"\r\n\r\n", b"Content-Length: 99999999\r\n", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x00" * 40,
    b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: br\r\n", b"<!--", b"<script>", b"</", b"&#xD800;",
    b"<![CDATA[", b"<table><tr><td>", b"<div " * 50, b"\xff\xfe", b"\xed\xa0\x80", b"<pre>" * 300,
    b"<plaintext>", b"-1\r\n", b"]]>",
)  # fmt: skip


def mutate(rng: random.Random, data: bytes, times: int) -> bytes:
    changed = bytearray(data)
    for _ in range(times):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0:
                changed[at : at + 1] = rng.randbytes(1)
            case 1:
                del changed[at : at + rng.choice((1, 2, 30, 400))]
            case 2:
                changed[at:at] = rng.choice(TOKENS)
            case 3:
                changed[at:at] = rng.randbytes(rng.choice((1, 8, 200)))
            case 4:
                changed[at:at] = changed[max(0, at - 300) : at]
            case _:
                changed[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"0000", b"9999", b"\x00\x00\x00\x80"))
    return bytes(changed)


def one_file(rng: random.Random) -> bytes:
    """A small archive with something wrong in its bytes, in its records before they were packed, or in its pages."""
    records = ten()[:6]
    place = rng.randrange(3)
    if place == 0:
        body = mutate(rng, page(1) * rng.choice((1, 1, 9)), rng.randint(1, 30))
        records[2] = record(
            http(body, Content_Encoding=rng.choice(("", "gzip", "br", "zstd", "deflate"))), "http://f.test/"
        )
        records[3] = record(http(gzip.compress(body), Content_Encoding="gzip"), "http://g.test/")
    elif place == 1:
        records[2] = mutate(rng, records[2], rng.randint(1, 5)) or b"x"
    layout = rng.randrange(4)
    if layout == 0:
        data = members(records)
    elif layout == 1:
        data = b"".join(records)
    elif layout == 2:
        data = gzip.compress(b"".join(records[:3])) + members(records[3:])
    else:
        data = b"".join(map(zstandard.compress, records))
    return mutate(rng, data, rng.randint(1, 6)) if place == 2 else data


def check(path: Path, storage: Storage, number: int) -> Counter[str]:
    """Makes the file's part of `records/`. Raises AssertionError for what must not be."""
    file = sources.identify(str(path))
    planned = PlannedInput(file.input_id, file.uri, file.size, file.etag, path.name)
    begin = time.process_time()
    part = make_part(PartTask(planned, Stretch(), f"e{number}", f"m{number}"), Recipe(), storage)
    assert time.process_time() - begin < BAR_SECONDS, "too slow"
    assert not isinstance(part, Failed), part
    books = part.meta
    assert books["bytes_covered"] == file.size, "records and gaps do not tile the file"
    records = sum(books["records_by_type"].values())
    found = records + len(books["gaps"])
    assert part.rows == found or (part.rows == 0 and not records), f"{part.rows} rows, {found} records and gaps"
    with RowReader(storage, part.path) as reader:
        rows = (
            [row for _, table in reader.read(range(reader.num_rows)) for row in table.to_pylist()] if part.rows else []
        )
    bad = [row for row in rows if row["reason"] in ("error", "crash", "timeout", "memory")]
    assert not bad, f"{bad[0]['reason']}: {bad[0]['detail']}"
    storage.delete(storage.list("records"))
    return Counter(row["reason"] or "text" for row in rows)


def run(seconds: float, seed: int) -> tuple[int, Counter[str]]:
    """Files tried until the time is over, and what became of their records."""
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    total: Counter[str] = Counter()
    number = 0
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "fuzz.warc"
        storage = open_run(f"{name}/run", must_exist=False)
        while time.monotonic() < end:
            data = one_file(rng) or b"x"
            path.write_bytes(data)
            try:
                total += check(path, storage, number)
            except Exception:
                kept = Path(f"fuzz-{seed}-{number}.warc")
                kept.write_bytes(data)
                print(f"file {number} of seed {seed}: kept as {kept}")
                raise
            number += 1
    return number, total


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--toy", action="store_true", help="10 s, seed 1: what CI runs")
    args = parser.parse_args(argv)
    if args.toy:
        args.seconds, args.seed = 10, 1
    warm()  # what is compiled once is no file's time
    number, total = run(args.seconds, args.seed)
    print(f"{number} files in {args.seconds:g} s, seed {args.seed}: {dict(total.most_common())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
