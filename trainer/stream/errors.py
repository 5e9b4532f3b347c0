"""The ways in which reading for training ends badly. Each message is one line, cause first, and says what to do."""

from __future__ import annotations


class StreamError(Exception):
    """The data cannot be read on: stop the run."""


class StreamUsageError(StreamError):
    """Settings that do not fit the data or one another, found before a batch was made."""


class ContentFault(Exception):  # noqa: N818 - a verdict over rows, not over the run
    """The bytes arrived and are not what they were: these rows are put into quarantine."""


def is_missing(error: BaseException) -> bool:
    """Whether the file is not there; over HTTP fsspec says so of every failed request, with the cause behind it."""
    if not isinstance(error, FileNotFoundError):
        return False
    cause = error.__cause__
    return cause is None or isinstance(cause, FileNotFoundError) or getattr(cause, "status", None) in (404, 410)


def one_line(error: BaseException) -> str:
    """An error of a library as part of a message."""
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:  # fsspec's for any failed request
        error = error.__cause__
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
