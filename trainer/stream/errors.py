"""The ways in which reading for training ends badly. Each message is one line, cause first, and says what to do."""

from __future__ import annotations


class StreamError(Exception):
    """The data cannot be read on: stop the run."""


class StreamUsageError(StreamError):
    """Settings that do not fit the data or one another, found before a batch was made."""


class ContentFault(Exception):  # noqa: N818 - a verdict over rows, not over the run
    """The bytes arrived and are not what they were: these rows are put into quarantine."""


def one_line(error: BaseException) -> str:
    """An error of a library as part of a message."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
