"""The two ways in which a command ends badly, and the one way in which a document does."""

from __future__ import annotations

import threading

#: Ctrl-C came. A call to Java that it broke may end in another error than KeyboardInterrupt.
INTERRUPTED = threading.Event()


class GristmillError(Exception):
    """The run failed; the message is one line, cause first, and says what to do. Exit status 1."""

    exit_status = 1


class UsageError(GristmillError):
    """Wrong arguments or a wrong recipe, found before anything was read. Exit status 2."""

    exit_status = 2


def one_line(message: str) -> str:
    """`message` as a terminal can show it in one line: names from a disk may hold line feeds, escapes, odd bytes."""
    return "".join(c if c.isprintable() else _escaped(c) for c in message)


def first_line(error: BaseException) -> str:
    """What an error of a library says, as far as one line goes."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as Python carries it in names
        return f"\\x{code - 0xDC00:02x}"
    return char if char == "\xa0" else char.encode("unicode_escape").decode()


class Rejected(Exception):  # noqa: N818 - a verdict, not a fault
    """One document ends here. `stage` and `reason` are of `datasets.REASONS`; `detail` is for people."""

    def __init__(self, stage: str, reason: str, detail: str | None = None) -> None:
        super().__init__(stage, reason, detail)
        self.stage = stage
        self.reason = reason
        self.detail = detail
