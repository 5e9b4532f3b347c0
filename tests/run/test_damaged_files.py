"""Damaged files through the whole command (shared cases 1, 2, 4, 5, 7, 8 and 17), each beside sound ones.

The checks that go with every case: records and verdicts of all other pages are byte-identical to a run without the bad
one, the accounts balance (the command checks them), time and memory are bounded.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipeline import accounts
from pipeline.crawl.warc import LZ4_REFUSED
from pipeline.storage import open_run
from tests.crawl.archives import http, members, record
from tests.crawl.test_charset import SAMPLES, STYLE, html
from tests.run import runs
from tests.run.test_odd_pages import article

pytestmark = pytest.mark.usefixtures("spark")


def url(number: int) -> str:
    return f"http://ex.test/{number}"


@cache
def sound(number: int) -> bytes:
    return record(http(article(number)), url(number))


@cache
def member(number: int) -> bytes:
    return members([sound(number)])


def with_fourth(fourth: bytes | Callable[[bytes], bytes]) -> bytes:
    """Ten pages, one member each, the one at 4 as given, or as made of its sound member."""
    packed = [member(n) for n in range(10)]
    packed[4] = fourth if isinstance(fourth, bytes) else fourth(packed[4])
    return b"".join(packed)


def flipped(member: bytes) -> bytes:
    middle = len(member) // 2
    return member[:middle] + bytes([member[middle] ^ 0x55]) + member[middle + 1 :]


def header(old: bytes, new: bytes) -> bytes:
    return members([sound(4).replace(old, new, 1)])


def changed(**how: Any) -> bytes:
    return members([record(http(article(4)), url(4), **how)])


def bomb(mib: int, head: bytes = b"<html>") -> bytes:
    """A gzip member of zeros, made of one piece that repeats; its checksum is wrong, but nobody should come to it."""
    packer = zlib.compressobj(9, wbits=31)
    begin = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return begin + piece * mib + b"\x03\x00" + bytes(8)


OUTER = record(http(b""), url(4), length=str(4 << 30))[:-4]
QUOTE = b"<html><body><article><pre>\r\n" + sound(77) + b"</pre>" + article(4) + b"</article></body></html>"
BOMB = bomb(256)
#: name -> (file, what became of the record or gap at 4; None: it is a document like the others)
CASES: dict[str, tuple[bytes, tuple[str, str] | None]] = {
    "2a-flipped": (with_fourth(flipped), ("read", "damaged")),
    "2b-crc": (with_fourth(lambda m: m[:-8] + bytes([m[-8] ^ 255]) + m[-7:]), ("read", "damaged")),
    "2c-zeros": (with_fourth(lambda m: bytes(37) + m), ("read", "damaged")),
    "4-version": (with_fourth(header(b"WARC/1.0", b"XARC/1.0")), ("read", "bad_header")),
    "4-colon": (with_fourth(header(b"WARC-Type:", b"WARC-Type")), ("read", "bad_header")),
    "4-uri": (with_fourth(header(b"ex.test/4", b"ex.test/4\x08\xff\xc3")), ("read", "bad_header")),
    "4-date": (with_fourth(header(b"WARC-Date: 2024-05-01T00:00:00Z\r\n", b"")), ("read", "bad_header")),
    "4-old": (with_fourth(changed(version="WARC/0.18")), None),
    "4-new": (with_fourth(changed(version="WARC/1.1")), None),
    "5-more": (with_fourth(changed(length=5000)), ("read", "length_mismatch")),
    "5-less": (with_fourth(changed(length=-30)), ("read", "length_mismatch")),
    "5-one-less": (with_fourth(changed(length=-1)), ("read", "length_mismatch")),
    "5-none": (with_fourth(changed(length=None)), ("read", "length_mismatch")),
    "5-quote": (with_fourth(members([record(http(QUOTE), url(4))])), None),
    "7-inner": (with_fourth(members([record(http(BOMB, Content_Encoding="gzip"), url(4))])), ("read", "too_large")),
    "7-outer": (with_fourth(bomb(4096, OUTER)), ("read", "too_large")),
    "8-marked": (with_fourth(changed(extra=["WARC-Truncated: length"])), ("read", "truncated")),
    "8-unmarked": (
        with_fourth(members([record(http(article(4), Content_Length="99999"), url(4))])), ("read", "truncated"),
    ),
    "8-204": (with_fourth(members([record(http(b"", "204 No Content"), url(4))])), ("fetch", "http_status")),
    "8-301": (with_fourth(members([record(http(article(4), "301 Moved"), url(4))])), ("fetch", "http_status")),
    "8-404": (with_fourth(members([record(http(article(4), "404 Not Found"), url(4))])), ("fetch", "http_status")),
    "8-revisit": (with_fourth(changed(kind="revisit")), ("fetch", "revisit")),
    "8-resource": (
        with_fourth(members([record(article(4), url(4), kind="resource", content_type="text/html")])), None,
    ),
    "8-pdf": (with_fourth(members([record(http(b"%PDF-1.7 " + bytes(999)), url(4))])), ("fetch", "not_html")),
    "8-empty": (with_fourth(members([record(http(b""), url(4))])), ("fetch", "empty_body")),
}  # fmt: skip


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    for name, (data, _) in CASES.items():
        (folder / f"{name}.warc.gz").write_bytes(data)
    whole = with_fourth(lambda same: same)
    (folder / "sound.warc.gz").write_bytes(whole)
    last = len(member(9))
    cuts = range(len(whole) - last + 1, len(whole), last // 10)
    for cut in cuts:
        (folder / f"1-cut-{cut:06}.warc.gz").write_bytes(whole[:cut])
    began = time.monotonic()
    (folder / "packed.warc.lz4").write_bytes(b"\x04\x22\x4d\x18" + whole)
    (folder / "notes.txt").write_bytes(b"no archive at all\n" * 99)
    (folder / "void.warc.gz").touch()
    by_hand = [folder / "packed.warc.lz4", folder / "notes.txt"]
    assert runs.curate([folder, *by_hand], folder / "run") == 0
    assert time.monotonic() - began < 100, "of which the largest bomb takes a second or two"
    return folder / "run"


@pytest.fixture(scope="module")
def by_file(finished_run: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    rows = sorted(runs.rows(finished_run, "records"), key=lambda row: (row["warc_file"], row["ordinal"]))
    for row in rows:
        found.setdefault(row["warc_file"].removesuffix(".warc.gz"), []).append(row)
    return found


def neighbours(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """All that was learnt of each page but 4, apart from where in which file it stood."""
    place = ("record_id", "input_id", "ordinal", "warc_file", "warc_offset")
    kept = (row for row in rows if row["text"] is not None and row["url"] != url(4))
    return [tuple(repr(value) for name, value in row.items() if name not in place) for row in kept]


@pytest.mark.parametrize("name", CASES)
def test_each_case_costs_its_record_only(name: str, by_file: dict[str, list[dict[str, Any]]]) -> None:
    rows, verdict = by_file[name], CASES[name][1]
    assert neighbours(rows) == neighbours(by_file["sound"])
    assert len(neighbours(rows)) == 9
    assert not [row["url"] for row in rows if row["text"] and "doc 77" in row["text"] and name != "5-quote"]
    (odd, *more) = [row for row in rows if row["text"] is None or row["url"] == url(4)]
    assert (odd["stage"], odd["reason"]) == (verdict or (None, None)), odd["detail"]
    assert odd["warc_offset"] == sum(len(member(n)) for n in range(4))
    assert [row["url"] for row in more] == ([url(4)] if name == "2c-zeros" else [])
    if name == "4-uri":
        assert odd["url"] == "http://ex.test/4%08%FF%C3", "kept, escaped losslessly"


def test_a_cut_file_keeps_its_whole_records(by_file: dict[str, list[dict[str, Any]]]) -> None:
    cut = [rows for name, rows in by_file.items() if name.startswith("1-cut")]
    assert len(cut) >= 10
    for rows in cut:
        assert [row["url"] for row in rows if row["text"]] == [url(n) for n in range(9)]
        assert [(row["stage"], row["reason"]) for row in rows if not row["text"]] == [("read", "truncated")]


def test_the_report_names_files_and_accounts_balance(finished_run: Path) -> None:
    accounts.check(open_run(str(finished_run), must_exist=True))
    inputs = {row["uri"].rpartition("/")[2]: row for row in runs.rows(finished_run, "inputs")}
    assert inputs["sound.warc.gz"]["status"] == "ok"
    cut = sum(name[0] == "1" for name in inputs)
    assert Counter(row["status"] for name, row in inputs.items() if name[0] in "125") == {"damaged": cut + 7, "ok": 1}
    assert (inputs["notes.txt"]["status"], inputs["notes.txt"]["detail"]) == ("skipped", "no crawl record in it")
    assert (inputs["void.warc.gz"]["status"], inputs["void.warc.gz"]["detail"]) == ("skipped", "the file is empty")
    assert (inputs["packed.warc.lz4"]["status"], inputs["packed.warc.lz4"]["detail"]) == ("skipped", LZ4_REFUSED)
    (gap,) = inputs["2c-zeros.warc.gz"]["gaps"]
    assert (gap["length"], gap["cause"]) == (37, "bytes between records")


def test_pages_of_many_charsets_come_out_whole(tmp_path: Path) -> None:  # case 17
    pages: dict[str, tuple[bytes, str]] = {}
    for text, codec, label in SAMPLES:
        for head in ("", STYLE):
            for said, content_type, meta in (
                ("header", label, None), ("meta", None, label), ("both", label, label), ("disagree", "utf-8", label),
                ("neither", None, None),
            ):  # fmt: skip
                address = f"http://charset.test/{label}/{said}/{len(head)}"
                kind = f"text/html; charset={content_type}" if content_type else "text/html"
                body = html(text, meta, head).encode(codec)
                pages[address] = (record(http(body, content_type=kind), address), text)
    stray = html("Grüße an die Bürger der Städte, überall. " * 14, None).encode().replace(b"Gr\xc3", b"\xffGr\xc3", 1)
    pages["http://charset.test/stray"] = (record(http(stray), "http://charset.test/stray"), "\ufffdGrüße an die Bürger")
    noise = bytes(b * 37 % 128 + 128 for b in range(999))
    pages["http://charset.test/noise"] = (record(http(noise), "http://charset.test/noise"), "")
    file = tmp_path / "charsets.warc.gz"
    file.write_bytes(members([page for page, _ in pages.values()]))
    assert runs.curate([file], tmp_path / "run") == 0
    rows = {row["url"]: row for row in runs.rows(tmp_path / "run", "records")}
    assert rows.keys() == pages.keys()
    assert rows["http://charset.test/noise"]["reason"] == "undecodable"
    texts = {address: " ".join((row["text"] or "").split()) for address, row in rows.items()}
    assert [address for address, (_, text) in pages.items() if " ".join(text.split()) not in texts[address]] == []
