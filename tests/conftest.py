"""What many tests share: one Spark session, the real data, an S3 server on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).resolve().parents[1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# Spark's Python workers inherit the environment of the JVM, so this stands before any session starts; the server
# itself starts only when a test asks for it.
S3_PORT = _free_port()
os.environ |= {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{S3_PORT}",
    "AWS_EC2_METADATA_DISABLED": "true",
}
os.environ.pop("AWS_PROFILE", None)


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's root folder."""
    return PROJECT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real pages beside the project; tests that need it are skipped where it is absent."""
    folder = PROJECT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the real pages in {folder}")
    return folder


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One embedded session, local[2,4], for the whole run."""
    from pipeline.spark import session

    running = session("local[2]", app="gristmill-tests")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Address of an S3 server; AWS_* point s3fs at it, here, in children and in Spark's workers."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=S3_PORT, verbose=False)
    server.start()
    yield os.environ["AWS_ENDPOINT_URL"]
    server.stop()


@pytest.fixture
def s3_bucket(s3_server: str, request: pytest.FixtureRequest) -> str:
    """A new empty bucket as `s3://NAME`, one per test."""
    import boto3

    name = f"test-{zlib.crc32(request.node.nodeid.encode()):08x}"
    boto3.client("s3").create_bucket(Bucket=name)
    return f"s3://{name}"


@pytest.fixture(scope="session")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sample crawl that all tests of whole runs read; none changes it."""
    folder = tmp_path_factory.mktemp("crawl")
    from jobs.cli import main

    assert main(["sample", str(folder), "--pages", "120"]) == 0
    return folder


@pytest.fixture(scope="session")
def finished(spark: SparkSession, crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the sample with the fineweb recipe. Tests that change a run work on a copy."""
    from tests.run import runs

    out = tmp_path_factory.mktemp("finished") / "run"
    assert runs.curate([crawl], out, recipe="fineweb") == 0
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any look into an input file fails the test (the driver's part; tasks would fail on the deleted file)."""
    from pipeline.crawl import sources

    def refuse(uri: str, offset: int = 0) -> None:
        raise AssertionError(f"read {uri}")

    monkeypatch.setattr(sources, "open_at", refuse)
    monkeypatch.setattr(sources, "identify", refuse)
