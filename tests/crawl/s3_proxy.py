"""Stands between s3fs and the S3 server on loopback and spoils answers to GET."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from tests.conftest import S3_PORT
from tests.crawl.faulty import Quiet


@dataclass
class Proxy:
    spoil: int = 0  #: so many answers to come are spoilt
    address: str = ""


@contextlib.contextmanager
def spoiling(kind: str, status: int, body: bytes) -> Iterator[Proxy]:
    """`kind`: `status` answers with it and `body`, `drop` cuts the true answer half-way."""
    proxy = Proxy()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            upstream = http.client.HTTPConnection("127.0.0.1", S3_PORT)
            upstream.request("GET", self.path, headers=dict(self.headers.items()))
            answer = upstream.getresponse()
            data = answer.read()
            spoilt = proxy.spoil > 0
            proxy.spoil -= spoilt
            if spoilt and kind == "status":
                self._send(status, [("Content-Type", "application/xml")], body)
                return
            skip = {"content-length", "connection", "transfer-encoding", "date", "server"}
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in skip]
            self._send(answer.status, headers, data, cut=len(data) // 9 if spoilt else None)

        def _send(self, status: int, headers: list[tuple[str, str]], data: bytes, cut: int | None = None) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.close_connection = cut is not None
            with contextlib.suppress(ConnectionError):
                self.wfile.write(data[:cut])

        def log_message(self, *_: object) -> None:
            pass

    with Quiet(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
        proxy.address = f"http://127.0.0.1:{running.server_address[1]}"
        yield proxy
        running.shutdown()
