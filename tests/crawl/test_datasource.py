"""`spark.read.format("warc")` gives what the reader sees, row for row."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.crawl.datasource import SCHEMA, WarcDataSource
from tests.crawl.archives import http, members, page, record, ten


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(WarcDataSource)
    return spark


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cyrillic = "<p>Сегодня в городе открылась новая библиотека, где можно читать книги.</p>" * 3
    odd = [
        record(http(gzip.compress(page(1)), Content_Encoding="gzip", ETag="x"), "http://odd.test/gzip"),
        record(http(cyrillic.encode("cp1251"), content_type="text/html"), "http://odd.test/cyrillic"),
        record(http(b"\x89PNG\r\n", content_type="image/png"), "http://odd.test/png"),
        record(http(b"gone", "404 Not Found"), "http://odd.test/404"),
        record(b"some text", "http://odd.test/wet", kind="conversion", content_type="text/plain"),
        record(b"isPartOf: X", kind="warcinfo"),
        record(http(page(2)), "http://odd.test/short", length=-30),
    ]
    (tmp_path / "odd.warc.gz").write_bytes(members(odd) + b"rubbish")
    (tmp_path / "ten.warc").write_bytes(b"".join(ten()))
    return tmp_path


def rows(frame: Any) -> dict[str | None, Any]:
    return {row.url: row for row in frame.collect()}


def test_a_folder_of_crawl_files(source: SparkSession, folder: Path) -> None:
    frame = source.read.format("warc").load(str(folder))
    assert frame.columns == SCHEMA.names
    assert frame.rdd.getNumPartitions() == 2
    got = rows(frame)
    assert len(got) == 6 + 1 + 10
    assert [bytes(got[f"http://ex.test/{n}"].body) for n in range(10)] == [page(n) for n in range(10)]
    packed = got["http://odd.test/gzip"]
    assert (bytes(packed.body), packed.text, packed.http_status) == (page(1), page(1).decode(), 200)
    assert (packed.http_headers["etag"], packed.mime, packed.problem) == ("x", "text/html", None)
    assert got["http://odd.test/cyrillic"].charset == "windows-1251"
    assert "библиотека" in got["http://odd.test/cyrillic"].text
    assert bytes(got["http://odd.test/png"].body) == b"\x89PNG\r\n"
    assert got["http://odd.test/png"].text is None
    assert (got["http://odd.test/404"].http_status, bytes(got["http://odd.test/404"].body)) == (404, b"gone")
    assert got["http://odd.test/wet"].text == "some text"
    assert got["http://odd.test/short"].problem.startswith("read/length_mismatch")
    assert got["http://odd.test/short"].body is None
    assert got[None].problem == "read/damaged: bytes between records"


def test_a_list_of_paths_and_options(source: SparkSession, folder: Path) -> None:
    paths = [str(folder / "ten.warc"), str(folder / "odd.warc.gz")]
    assert source.read.format("warc").load(paths).count() == 17
    small = source.read.format("warc").option("body_mib", "0.0001").load(paths[0])
    assert {row.problem.partition(":")[0] for row in small.collect()} == {"read/too_large"}


def test_what_is_wrong_is_named(source: SparkSession, folder: Path) -> None:
    for option, path, words in (("body_mib", "absent.warc", "absent.warc"), ("no_such", "ten.warc", "unknown option")):
        with pytest.raises(Exception, match=words):
            source.read.format("warc").option(option, "1").load(str(folder / path)).count()
