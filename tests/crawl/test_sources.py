"""Every way to name crawl files, and a clear line for every way to name none."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.crawl.sources import expand, group_identical, identify, mark, open_at
from pipeline.crawl.warc import read
from pipeline.errors import UsageError
from tests.crawl.archives import documents, members, ten
from tests.crawl.faulty import Faulty, serve

BASE = "https://data.example/"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a/one.warc.gz", "a/deep/two.warc", "b/three.warc.wet.gz", "b/four.arc.gz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(members(ten()[:2]) + name.encode())
    (tmp_path / "a/notes.txt").write_text("no crawl")
    (tmp_path / "empty").mkdir()
    return tmp_path


def names(found: list[str]) -> list[str]:
    return [uri.rpartition("/")[2] for uri in found]


def test_files_folders_and_globs(folder: Path) -> None:
    assert names(expand([str(folder)], base=BASE)) == ["two.warc", "one.warc.gz", "four.arc.gz", "three.warc.wet.gz"]
    assert names(expand([str(folder / "*/*.gz")], base=BASE)) == ["one.warc.gz", "four.arc.gz", "three.warc.wet.gz"]
    assert names(expand([str(folder / "**/*.warc")], base=BASE)) == ["two.warc"]
    assert names(expand([str(folder / "a/notes.txt")], base=BASE)) == ["notes.txt"], "named by hand, so taken"
    twice = expand([str(folder / "a"), str(folder / "a/one.warc.gz"), os.path.relpath(folder / "a")], base=BASE)
    assert names(twice) == ["two.warc", "one.warc.gz"]
    assert all(os.path.isabs(uri) for uri in twice)


@pytest.mark.parametrize("name", ["absent.warc.gz", "empty", "void.warc.gz", "*.nothing", "void.paths", "absent.paths",
                                  "broken.paths.gz", "s3", "ftp"])  # fmt: skip
def test_what_is_not_there_is_named(folder: Path, name: str) -> None:
    (folder / "void.warc.gz").touch()
    (folder / "void.paths").write_text("\n\n")
    (folder / "broken.paths.gz").write_bytes(b"\x1f\x8b\x08 broken")
    with pytest.raises(UsageError) as caught:
        expand([str(folder / "a"), str(folder / name)], base=BASE)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_links_that_lead_back_are_followed_once(folder: Path) -> None:
    before = names(expand([str(folder)], base=BASE))
    for place in ("a/loop", "a/deep/loop", "b/loop", "b/other"):  # 40 levels, three ways at each, without a limit
        (folder / place).symlink_to(folder)
    assert sorted(names(expand([str(folder)], base=BASE))) == sorted(before)


def test_what_is_no_file_is_not_opened(folder: Path) -> None:
    os.mkfifo(folder / "a/pipe.warc.gz")
    with pytest.raises(UsageError, match=r"pipe\.warc\.gz: cannot be read .*a pipe or device"):
        identify(str(folder / "a/pipe.warc.gz"))
    with pytest.raises(UsageError, match="a folder, not a file"):
        identify(str(folder / "a"))


def test_no_input_at_all() -> None:
    with pytest.raises(UsageError, match="no input"):
        expand([], base=BASE)


def test_lists_of_paths(folder: Path) -> None:
    lines = ["a/one.warc.gz", "", "crawl-data/x.warc.gz", "https://other.example/y.warc.gz", "s3://bucket/z.warc.gz"]
    (folder / "warc.paths").write_text("\ufeff" + "\n".join(lines))  # as some editors begin a file
    (folder / "warc.paths.gz").write_bytes(gzip.compress("\r\n".join(lines).encode()))
    for name in ("warc.paths", "warc.paths.gz"):
        assert expand([str(folder / name)], base=BASE) == [
            str(folder / "a/one.warc.gz"),
            "https://data.example/crawl-data/x.warc.gz",
            "https://other.example/y.warc.gz",
            "s3://bucket/z.warc.gz",
        ]


def test_a_sample_depends_on_the_set_alone(folder: Path) -> None:
    (folder / "many.paths").write_text("\n".join(f"https://h.example/{i}.warc.gz" for i in range(100)))
    (folder / "same.paths").write_text("\n".join(f"https://h.example/{99 - i}.warc.gz" for i in range(100)))
    few = expand([str(folder / "many.paths")], base=BASE, files=7)
    assert few == expand([str(folder / "same.paths")], base=BASE, files=7)
    assert len(few) == 7
    assert set(few) < set(expand([str(folder / "many.paths")], base=BASE, files=8))
    assert len(expand([str(folder / "many.paths")], base=BASE, files=1000)) == 100
    with pytest.raises(UsageError, match="--files 0"):
        expand([str(folder / "many.paths")], base=BASE, files=0)


def test_identity_is_of_the_bytes(folder: Path) -> None:
    first = identify(str(folder / "a/one.warc.gz"))
    copy = folder / "empty/copy.warc.gz"
    copy.write_bytes((folder / "a/one.warc.gz").read_bytes())
    again = identify(str(copy))
    assert first.input_id == again.input_id
    assert len(first.input_id) == 32
    assert (first.size, first.etag) == mark(first.uri)
    os.utime(copy, ns=(1, 1))
    assert identify(str(copy)).etag != again.etag
    copy.write_bytes(copy.read_bytes()[:-1] + b"!")
    assert identify(str(copy)).input_id != first.input_id


def test_same_bytes_are_one_input_and_different_bytes_never(tmp_path: Path) -> None:
    edge = b"e" * (64 * 1024)
    for name, middle in (("b/z.warc", b"m" * 9), ("a/y.warc", b"m" * 9), ("c/x.warc", b"n" * 9)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(edge + middle + edge)
    files = [identify(str(p)) for p in sorted(tmp_path.rglob("*.warc"))]
    assert len({f.input_id for f in files}) == 1
    for order in (files, files[::-1]):
        groups = group_identical(order)
        assert sorted([f.name for f in group] for group in groups) == [["x.warc"], ["y.warc", "z.warc"]]
        assert len({group[0].input_id for group in groups}) == 2
        assert {f.name: f.input_id for g in groups for f in g} == {
            f.name: f.input_id for g in group_identical(files) for f in g
        }


@pytest.fixture
def web(folder: Path) -> Iterator[str]:
    files = {f"/{p.relative_to(folder)}": p.read_bytes() for p in folder.rglob("*.gz")}
    files["/crawl/warc.paths.gz"] = gzip.compress(b"a/one.warc.gz\nb/four.arc.gz\n")
    with serve(Faulty(files)) as server:
        yield server.address


def test_over_http(folder: Path, web: str) -> None:
    found = expand([f"{web}/crawl/warc.paths.gz"], base=BASE)
    assert found == [f"{web}/a/one.warc.gz", f"{web}/b/four.arc.gz"]
    here, there = identify(str(folder / "a/one.warc.gz")), identify(found[0])
    assert (here.input_id, here.size) == (there.input_id, there.size)
    with open_at(found[0]) as stream:
        events = list(read(stream))
    assert documents(events) == ["http://ex.test/0", "http://ex.test/1"]
    with open_at(found[0], events[1].offset) as stream:
        assert list(read(stream, start_offset=events[1].offset, start_ordinal=1)) == events[1:]
    for missing in (f"{web}/absent.warc.gz", "http://127.0.0.1:1/x.warc.gz"):
        with pytest.raises(UsageError, match=missing):
            identify(missing)
    with pytest.raises(UsageError, match=r"absent\.paths"):
        expand([f"{web}/absent.paths"], base=BASE)


@pytest.fixture
def bucket(folder: Path, s3_bucket: str) -> str:
    import s3fs

    system = s3fs.S3FileSystem(skip_instance_cache=True)
    for part in ("a", "b"):
        system.put(str(folder / part), f"{s3_bucket}/seg/{part}", recursive=True)
    return f"{s3_bucket}/seg"


def test_over_s3(folder: Path, bucket: str) -> None:
    whole = expand([bucket], base=BASE)
    assert names(whole) == ["two.warc", "one.warc.gz", "four.arc.gz", "three.warc.wet.gz"]
    assert expand([f"{bucket}/*/*.gz"], base=BASE) == sorted(u for u in whole if u.endswith(".gz") and "deep" not in u)
    assert expand([f"{bucket}/a/one.warc.gz"], base=BASE) == [f"{bucket}/a/one.warc.gz"]
    here, there = identify(str(folder / "a/one.warc.gz")), identify(f"{bucket}/a/one.warc.gz")
    assert (here.input_id, here.size) == (there.input_id, there.size)
    with open_at(there.uri) as stream:
        assert documents(list(read(stream))) == ["http://ex.test/0", "http://ex.test/1"]
    for missing in (f"{bucket}/absent.warc.gz", f"{bucket}/*.nothing", "s3://absent-bucket/x"):
        with pytest.raises(UsageError) as caught:
            expand([missing], base=BASE)
        assert missing in str(caught.value)
