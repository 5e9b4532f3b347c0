"""An HTTP server on loopback that serves byte ranges and does wrong as told, one fault per request."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(repr=False)
class Faulty:
    """`files`: path -> bytes. `faults`: called with the number of the request; what it names is done to this answer."""

    files: dict[str, bytes]
    faults: Callable[[str, int], str | None] = lambda path, number: None
    ranges: list[str] = field(default_factory=list)  #: `Range` of every request, in order
    connections: set[tuple[str, int]] = field(default_factory=set)
    most_at_once: int = 0
    address: str = ""
    etags: dict[str, str] = field(default_factory=dict)
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self, client: tuple[str, int], wanted: str) -> int:
        with self._lock:
            self.ranges.append(wanted)
            self.connections.add(client)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            return len(self.ranges) - 1

    def leave(self) -> None:
        with self._lock:
            self._now -= 1


def _handler(server: Faulty) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            number = server.enter(self.client_address, self.headers.get("Range", ""))
            try:
                with contextlib.suppress(ConnectionError):
                    self._answer(server.faults(self.path, number) or "")
            finally:
                server.leave()

        def _answer(self, fault: str) -> None:
            kind, _, value = fault.partition(" ")
            data = server.files.get(self.path)
            if data is None:
                return self._plain(404)
            if kind == "status":
                return self._plain(int(value))
            if kind == "later":  # busy, with Retry-After
                return self._plain(429, ("Retry-After", value))
            if kind == "hang":
                time.sleep(float(value))
            if kind in ("hang", "close"):
                self.close_connection = True
                return None
            if kind == "changed":
                data = data[: -int(value)]
            first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or len(data)) + 1, len(data))
            if start >= len(data):
                return self._plain(416, ("Content-Range", f"bytes */{len(data)}"))
            if kind == "shorter":
                end = min(end, start + int(value))
            whole = kind == "whole"
            part = data if whole else data[start:end]
            length = len(part) + (int(value) if kind == "length" else 0)
            shift = int(value) if kind == "shift" else 0
            if kind == "unsized":
                self.close_connection = True
            self.send_response(200 if whole else 206)
            self.send_header("ETag", f'"{server.etags.get(self.path, "one")}"' if kind != "etag" else f'"{value}"')
            if kind != "unsized":
                self.send_header("Content-Length", str(length))
            if not whole:
                self.send_header("Content-Range", f"bytes {start + shift}-{end - 1 + shift}/{len(data)}")
            if kind == "labelled":
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            if kind == "drop":
                part = part[: int(value)]
            if kind in ("drop", "length", "unsized"):
                self.close_connection = True
            if kind == "unsized":
                part = part[: int(value)]
            if kind == "trickle":
                for i in range(len(part)):
                    self.wfile.write(part[i : i + 1])
                    time.sleep(float(value))
                return None
            self.wfile.write(part + (b"x" * int(value) if kind == "longer" else b""))
            return None

        def _plain(self, status: int, *headers: tuple[str, str]) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news here."""


@contextlib.contextmanager
def serve(server: Faulty) -> Iterator[Faulty]:
    with Quiet(("127.0.0.1", 0), _handler(server)) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        server.address = f"http://127.0.0.1:{running.server_address[1]}"
        yield server
        running.shutdown()
