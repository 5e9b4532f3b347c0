"""What to do when a server does not answer as it should: pause and try again, or say why not.

Pauses double from `wait_seconds` to a minute, each shortened by up to half at random so that many readers do not come
back in step; a `Retry-After` up to two minutes is kept. aiohttp asks again only where a kept connection was closed, and
s3fs's five tries wait for 2 s in all; so s3fs and botocore are told to try once, and this is the only place that waits.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

import aiohttp
import botocore.exceptions
import botocore.parsers

from pipeline.crawl.slots import place
from pipeline.crawl.supervise import SourceError
from pipeline.errors import GristmillError
from pipeline.recipe import Input

T = TypeVar("T")

LONGEST_PAUSE = 60.0
LONGEST_RETRY_AFTER = 120.0
#: A server to which no connection can be made is given up sooner while a run is planned: it may be a typing error.
UNREACHABLE_TRIES = 3
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_BUSY_CODES = frozenset(
    {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "RequestTimeout", "InternalError"}
)
_UNREACHABLE = (
    aiohttp.ClientConnectorError,
    botocore.exceptions.EndpointConnectionError,
    botocore.exceptions.ConnectTimeoutError,
)
_PASSING: tuple[type[BaseException], ...] = (
    aiohttp.ClientError,
    asyncio.TimeoutError,
    TimeoutError,
    ConnectionError,
    OSError,
    botocore.exceptions.HTTPClientError,
    botocore.exceptions.IncompleteReadError,
    botocore.parsers.ResponseParserError,
)
_LASTING = (
    aiohttp.InvalidURL,
    aiohttp.ClientConnectorCertificateError,
    aiohttp.TooManyRedirects,
    FileNotFoundError,
    PermissionError,
)


class Refusal(Exception):  # noqa: N818 - an answer
    """The server answered with a status that holds no bytes of the file."""

    def __init__(self, status: int, reason: str, retry_after: str | None = None, code: str = "") -> None:
        super().__init__(f"{status} {reason}".strip())
        self.again = status in _BUSY or code in _BUSY_CODES
        self.pause = _seconds(retry_after)


class Faulty(Exception):  # noqa: N818
    """The answer contradicts itself or the request, or ended early; another may do better."""


class Unusable(Exception):  # noqa: N818
    """No further try can help: the file is another one now, or the server cannot do what is needed."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error, told apart: `why` is for people."""

    why: str
    again: bool
    pause: float = 0.0
    unreachable: bool = False


def understand(error: BaseException) -> Trouble:
    """What `error`, raised by a request, means for the next try."""
    if isinstance(error, Refusal):
        return Trouble(str(error), error.again, error.pause)
    if isinstance(error, Unusable):
        return Trouble(str(error), False)
    if isinstance(error, Faulty):
        return Trouble(str(error), True)
    refusal = refusal_in(error)
    if refusal is not None:
        return Trouble(str(refusal), refusal.again, refusal.pause)
    text = " ".join(str(error).split())[:200]
    why = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, _UNREACHABLE) and not isinstance(error, _LASTING):
        return Trouble(why, True, unreachable=True)
    return Trouble(why, isinstance(error, _PASSING) and not isinstance(error, _LASTING))


def refusal_in(error: BaseException) -> Refusal | None:
    """The server's refusal that a library wrapped in an error of its own."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if isinstance(response, dict) and "ResponseMetadata" in response:
            said, meta = response.get("Error", {}), response["ResponseMetadata"]
            code = str(said.get("Code", ""))
            after = meta.get("HTTPHeaders", {}).get("retry-after")
            return Refusal(int(meta.get("HTTPStatusCode", 0)), f"{code}: {said.get('Message', '')}", after, code)
        cause = cause.__cause__
    return None


class Tries:
    """Counts the tries of one thing that is wanted from a server."""

    def __init__(self, uri: str, settings: Input, *, planning: bool = False) -> None:
        self._uri = uri
        self._settings = settings
        self._planning = planning
        self._failed = 0
        self._began = time.monotonic()

    def failed(self, error: Exception, *, progress: bool = False) -> None:
        """Pauses until the next try is due. Raises SourceError, naming the file, when there is none.

        `progress`: the try that failed brought something that stays, so the count begins anew.
        """
        trouble = understand(error)
        self._failed = 1 if progress else self._failed + 1
        tries = self._settings.tries
        if trouble.unreachable and self._planning:
            tries = min(tries, UNREACHABLE_TRIES)
        if not trouble.again:
            raise SourceError(f"{self._uri}: {trouble.why}") from None
        if self._failed >= tries:
            spent = time.monotonic() - self._began
            end = f"given up after {self._failed} tries in {spent:.0f} s"
            raise SourceError(f"{self._uri}: {trouble.why}; {end}") from None
        time.sleep(max(trouble.pause, pause(self._failed, self._settings.wait_seconds)))


def pause(failed: int, first: float) -> float:
    """Seconds to wait after `failed` tries."""
    return float(min(LONGEST_PAUSE, first * 2 ** (failed - 1))) * random.uniform(0.5, 1)


def patiently(uri: str, settings: Input, call: Callable[[], T]) -> T:
    """`call()`, again where it fails for a passing reason. Raises SourceError when it is given up."""
    tries = Tries(uri, settings, planning=True)
    while True:
        try:
            with place(server_of(uri), settings.requests):
                return call()
        except GristmillError:
            raise
        except Exception as error:
            tries.failed(error)


def server_of(uri: str) -> str:
    """Scheme and host, or scheme and bucket."""
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _seconds(retry_after: str | None) -> float:
    """What a `Retry-After` header asks for, within reason."""
    if not retry_after:
        return 0.0
    try:
        wanted = float(retry_after)
    except ValueError:
        try:
            wanted = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (TypeError, ValueError):
            return 0.0
    return min(max(wanted, 0.0), LONGEST_RETRY_AFTER)
