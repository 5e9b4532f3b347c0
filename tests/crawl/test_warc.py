"""The reader loses nothing: events tile the file whatever is in it, and damage costs the damaged record only."""

from __future__ import annotations

import gzip
import io
import random
import time
import tracemalloc
import zlib
from pathlib import Path

import pytest
import zstandard
from fastwarc.warc import ArchiveIterator, WarcRecordType
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.crawl.warc import LZ4_REFUSED, Gap, Record, Skipped, crawl_name, read, split_points
from pipeline.recipe import Limits
from tests.crawl.archives import documents, events, http, members, page, problems, record, ten

URLS = [f"http://ex.test/{i}" for i in range(10)]


def without(*gone: int) -> list[str]:
    return [u for i, u in enumerate(URLS) if i not in gone]


@pytest.mark.parametrize("pack", [members, b"".join, lambda r: gzip.compress(b"".join(r)),
                                  lambda r: b"".join(zstandard.compress(x) for x in r)])  # fmt: skip
def test_sound_files_come_out_whole(pack: object) -> None:
    records = [record(b"isPartOf: CC-TEST\r\n", kind="warcinfo", content_type="application/warc-fields"), *ten()]
    data = pack(records)  # type: ignore[operator]
    found = events(data)
    assert isinstance(found[0], Skipped)
    assert documents(found) == URLS
    assert [e.block for e in found if isinstance(e, Record)] == [http(page(i)) for i in range(10)]
    assert problems(found) == []


def test_the_crawl_is_named_by_warcinfo() -> None:
    info = record(b"software: x\r\nisPartOf: CC-MAIN-2024-22\r\n", kind="warcinfo")
    for data in (info + ten()[0], members([info, ten()[0]])):
        assert crawl_name(io.BytesIO(data)) == "CC-MAIN-2024-22"
    assert crawl_name(io.BytesIO(ten()[0])) is None


def test_records_that_share_a_member_share_its_offset() -> None:
    data = members(ten()[:1]) + gzip.compress(b"".join(ten()[1:4])) + members(ten()[4:5])
    found = events(data)
    assert [e.length is None for e in found if isinstance(e, Record)] == [False, True, True, True, False]
    assert [e.first_ordinal for e in found] == [0, 1, 1, 1, 4]
    second = found[1]
    again = events(data, start_offset=second.offset, start_ordinal=second.first_ordinal)
    assert again == found[1:]


def test_a_cut_at_any_place_costs_the_cut_record_only() -> None:  # case 1
    records = ten()
    data = members(records)
    starts = [len(members(records[:i])) for i in range(11)]
    for cut in range(starts[8] + 1, starts[10]):
        found = events(data[:cut])
        whole = sum(cut >= end for end in starts[1:])
        assert documents(found) == URLS[:whole], cut
        assert [reason for _, reason in problems(found)] == (["truncated"] if cut not in starts else []), cut


def test_a_member_that_holds_only_a_version_line_is_no_document() -> None:  # case 1
    found = events(members([*ten()[:9], b"WARC/1.0"]))
    assert documents(found) == URLS[:9]
    assert len(problems(found)) == 1


def test_plain_files_are_cut_alike() -> None:
    records = ten()
    data = b"".join(records)
    last = len(data) - len(records[9])
    for cut in range(last + 1, len(data) - 4):
        found = events(data[:cut])
        assert documents(found) == URLS[:9]
        assert [reason for _, reason in problems(found)] == ["truncated"], cut


def test_a_damaged_member_costs_itself_only() -> None:  # case 2
    packed = [gzip.compress(r, mtime=0) for r in ten()]
    flipped = bytearray(packed[4])
    flipped[len(flipped) // 2] ^= 0x55
    bad_crc = bytearray(packed[4])
    bad_crc[-6] ^= 0xFF
    for broken in (flipped, bad_crc):
        found = events(b"".join([*packed[:4], bytes(broken), *packed[5:]]))
        assert documents(found) == without(4)
        (problem,) = [e for e in found if isinstance(e, Gap) or (isinstance(e, Record) and e.problem)]
        assert problem.offset == len(b"".join(packed[:4]))
        assert problems(found) == [(4, "damaged")]
    # The header was readable, so the row can name its page.
    assert isinstance(found[4], Record)
    assert found[4].url == URLS[4]
    assert found[4].block == b""


@pytest.mark.parametrize(
    "garbage", [b"\0" * 37, b"WARC/", b"\x1f\x8b\x08\0garbage", random.Random(1).randbytes(5000), b"\r\n\r\n"]
)
def test_garbage_between_records_is_a_gap(garbage: bytes) -> None:  # case 2
    for pack in (members, b"".join):
        data = pack(ten()[:4]) + garbage + pack(ten()[4:])
        found = events(data)
        lost = {b"\r\n\r\n": 3, b"WARC/": 4}.get(garbage, -1) if pack is not members else -1  # it is part of a record
        assert documents(found) == without(lost)
        assert len(problems(found)) == 1


def test_records_before_a_break_in_a_shared_member_are_sound() -> None:
    data = bytearray(gzip.compress(b"".join(ten())) + members([record(http(b"tail"), "http://ex.test/tail")]))
    cut = len(gzip.compress(b"".join(ten())))
    data[cut * 7 // 10] ^= 0x41
    found = events(bytes(data))
    good = documents(found)
    assert good[:5] == URLS[:5]
    assert good[-1] == "http://ex.test/tail"
    assert len(problems(found)) >= 1


@pytest.mark.parametrize("pack", [members, b"".join])
@pytest.mark.parametrize("what", ["version", "colon", "uri", "date"])
def test_a_bad_header_ends_its_record_only(pack: object, what: str) -> None:  # case 4
    records = ten()
    old = records[4]
    records[4] = {
        "version": old.replace(b"WARC/1.0", b"XARC/1.0", 1),
        "colon": old.replace(b"WARC-Type: ", b"WARC-Type ", 1),
        "uri": old.replace(b"ex.test/4", b"ex.test/4\x08\xff\xc3", 1),
        "date": old.replace(b"WARC-Date: 2024-05-01T00:00:00Z\r\n", b"", 1),
    }[what]
    found = events(pack(records))  # type: ignore[operator]
    assert documents(found) == without(4)
    assert problems(found) == [(4, "bad_header")]
    event = found[4]
    assert isinstance(event, Record)
    assert event.url == ("http://ex.test/4%08%FF%C3" if what == "uri" else URLS[4])


def test_old_and_new_versions_mix() -> None:  # case 4
    records = [r.replace(b"WARC/1.0", v, 1) for r, v in zip(ten(), [b"WARC/0.18", b"WARC/1.1"] * 5, strict=True)]
    assert documents(events(members(records))) == URLS
    loose = [r.replace(b"\r\n", b"\n") for r in ten()]
    assert len(documents(events(members([loose[0]])))) == 0  # its length counts the removed bytes
    block = http(page(0)).replace(b"\r\n", b"\n")
    assert documents(events(record(block).replace(b"\r\n", b"\n"))) == [URLS[0]]


@pytest.mark.parametrize("pack", [members, b"".join, lambda r: gzip.compress(b"".join(r))])
@pytest.mark.parametrize("length", [5000, -30, None, -1, "-1", "many", 1, 3, 4, -4])
def test_a_wrong_length_ends_its_record_only(pack: object, length: int | str | None) -> None:  # case 5
    records = ten()
    records[4] = record(http(page(4)), URLS[4], length=length)
    found = events(pack(records))  # type: ignore[operator]
    assert documents(found) == without(4)
    assert problems(found) == [(4, "length_mismatch")]
    for event in found:
        if isinstance(event, Record) and event.problem is None:
            assert b"WARC/" not in event.block


def test_a_wrong_length_of_neighbours_costs_just_these() -> None:
    records = ten()
    for i in (4, 5):
        records[i] = record(http(page(i)), URLS[i], length=-30)
    found = events(b"".join(records))
    assert documents(found) == without(4, 5)
    assert problems(found) == [(4, "length_mismatch"), (5, "length_mismatch")]


def test_records_without_ids_are_found_behind_a_wrong_length() -> None:
    records = [b"\r\n".join(line for line in r.split(b"\r\n") if b"Record-ID" not in line) for r in ten()]
    records[4] = records[4].replace(b"Content-Length: ", b"Content-Length: 9", 1)
    for pack in (members, b"".join, lambda r: gzip.compress(b"".join(r))):
        assert documents(events(pack(records))) == without(4)


def test_lz4_is_one_gap_whatever_its_literals_look_like() -> None:
    found = events(b"\x04\x22\x4d\x18" + b"\x60\x70\x73" + b"".join(ten()))
    assert [(e.cause, e.reason) for e in found if isinstance(e, Gap)] == [(LZ4_REFUSED, "damaged")]
    assert len(found) == 1


def test_a_page_that_quotes_a_record_is_one_document() -> None:  # case 5
    quote = http(b"<pre>\r\n" + record(http(page(77)), "http://quoted.test/") + b"</pre>")
    for pack in (members, b"".join):
        found = events(pack([*ten()[:4], record(quote, URLS[4]), *ten()[5:]]))
        assert documents(found) == URLS
        assert problems(found) == []


def test_an_outer_bomb_is_not_inflated() -> None:  # case 7
    limits = Limits(body_mib=4)
    packer = zlib.compressobj(9, wbits=31)
    head = record(http(b""), "http://bomb.test/", length=str(256 << 20))[:-4]
    bomb = packer.compress(head) + b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(256)) + packer.flush()
    data = members(ten()[:4]) + bomb + members(ten()[5:])
    tracemalloc.start()
    before = time.process_time()
    found = events(data, limits)
    assert time.process_time() - before < 3
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120 << 20
    assert documents(found) == without(4)
    assert problems(found) == [(4, "too_large")]


def test_a_large_record_is_passed_over() -> None:
    large = record(http(random.Random(2).randbytes(3 << 20)), URLS[4])
    for pack in (members, b"".join):
        found = events(pack([*ten()[:4], large, *ten()[5:]]), Limits(body_mib=1))
        assert documents(found) == without(4)
        assert problems(found) == [(4, "too_large")]
        assert isinstance(found[4], Record)
        assert found[4].url == URLS[4]


def test_types_without_a_page_are_skipped() -> None:
    kinds = ["warcinfo", "request", "response", "metadata", "resource", "revisit", "conversion", "continuation"]
    found = events(members([record(http(page(i)), f"http://ex.test/{k}", k) for i, k in enumerate(kinds)]))
    assert [e.warc_type for e in found if isinstance(e, Skipped)] == ["warcinfo", "request", "metadata", "continuation"]
    assert [e.warc_type for e in found if isinstance(e, Record)] == ["response", "resource", "revisit", "conversion"]


@pytest.mark.parametrize("bad", [b"not a header line\n", b"http://bad.test/ 0.0.0.0 20080430204826 text/html -5\n"])
def test_a_bad_arc_header_costs_its_neighbour_at_most(bad: bytes) -> None:
    """Without a record end in ARC, nothing tells a bad line from a length too short: both records are given up."""
    body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>Page</p>"
    sound = [
        b"http://arc.test/%d 0.0.0.0 20080430204826 text/html %d\n" % (n, len(body)) + body + b"\n" for n in range(5)
    ]
    data = b"".join(sound[:2]) + bad + body + b"\n" + b"".join(sound[2:])
    found = [event for event in events(data) if isinstance(event, Record)]
    whole = [event.url for event in found if event.problem is None]
    assert whole == [f"http://arc.test/{n}" for n in (0, 2, 3, 4)]
    assert [event.url for event in found if event.problem] == ["http://arc.test/1"]


def test_arc_records_are_read() -> None:
    body = http(page(1))
    intro = b"1 0 test\nURL IP-address Archive-date Content-type Archive-length\n"
    data = b"filedesc://x.arc 0.0.0.0 20080430204825 text/plain %d\n" % len(intro) + intro + b"\n"
    for i in range(3):
        data += b"http://ex.test/%d 10.0.0.1 20080430204826 text/html %d\n" % (i, len(body)) + body + b"\n"
    found = events(data)
    assert documents(found) == URLS[:3]
    assert isinstance(found[1], Record)
    assert (found[1].block, found[1].http, found[1].warc_date) == (body, True, "2008-04-30T20:48:26Z")


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4000), st.integers(0, 10), st.sampled_from(["members", "plain", "shared"]), st.booleans())
def test_reading_in_parts_gives_the_same_events(every: int, bad: int, layout: str, garbage: bool) -> None:
    records = ten()
    if bad < 10:
        records[bad] = record(http(page(bad)), URLS[bad], length=-7)
    data = {
        "members": members(records),
        "plain": b"".join(records),
        "shared": gzip.compress(b"".join(records[:6])) + members(records[6:]),
    }[layout]
    if garbage:
        data = data[:-40] + b"\0" * 50 + members(ten()[:2])
    whole = events(data)
    points = split_points(io.BytesIO(data), every)
    assert points[0] == (0, 0)
    parts = []
    for (offset, ordinal), (end, _) in zip(points, [*points[1:], (len(data), -1)], strict=True):
        parts += events(data, start_offset=offset, start_ordinal=ordinal, end_offset=end)
    assert parts == whole


@settings(max_examples=150, deadline=2000)
@given(st.data())
def test_mutated_files_are_read_to_their_end(data: st.DataObject) -> None:
    base = bytearray(data.draw(st.sampled_from([members(ten()[:4]), b"".join(ten()[:4])])))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(base) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"])):
            case "flip":
                base[at] = data.draw(st.integers(0, 255))
            case "cut":
                del base[at : at + data.draw(st.integers(1, 200))]
            case "insert":
                base[at:at] = data.draw(st.binary(min_size=1, max_size=40))
            case _:
                base[at:at] = base[at : at + 300]
        if not base:
            base = bytearray(b"x")
    events(bytes(base))


def test_real_pages_are_counted_as_fastwarc_counts_them(shared_data: Path) -> None:
    path = shared_data / "crawl" / "pages-00009.warc.gz"
    with path.open("rb") as stream:
        ours = [(e.url, len(e.block)) for e in read(stream) if isinstance(e, Record) and e.problem is None]
    theirs = []
    for entry in ArchiveIterator(str(path), parse_http=False, record_types=WarcRecordType.response):
        theirs.append((entry.headers["WARC-Target-URI"], len(entry.reader.read())))
    assert ours == theirs
    assert len(ours) == 216


def test_every_odd_file_is_covered(shared_data: Path) -> None:
    for path in sorted((shared_data / "warc").rglob("*")):
        if path.is_file():
            events(path.read_bytes())


def test_a_page_full_of_quoted_headers_costs_no_more_than_others() -> None:
    quoted = (record(http(page(0)), "http://quoted.test/")[:-4] + b"x\n") * 20_000
    records = ten()
    records[4] = record(http(b"<pre>\n" + quoted), URLS[4], length=-30)
    before = time.process_time()
    found = events(gzip.compress(b"".join(records[:5])) + members(records[5:]))
    assert time.process_time() - before < 10
    assert documents(found) == without(4)
