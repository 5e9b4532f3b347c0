"""The two ways in which a command ends badly, and the one way in which a document does."""

from __future__ import annotations


class GristmillError(Exception):
    """The run failed; the message is one line, cause first, and says what to do. Exit status 1."""

    exit_status = 1


class UsageError(GristmillError):
    """Wrong arguments or a wrong recipe, found before anything was read. Exit status 2."""

    exit_status = 2


class Rejected(Exception):  # noqa: N818 - a verdict, not a fault
    """One document ends here. `stage` and `reason` are of `datasets.REASONS`; `detail` is for people."""

    def __init__(self, stage: str, reason: str, detail: str | None = None) -> None:
        super().__init__(stage, reason, detail)
        self.stage = stage
        self.reason = reason
        self.detail = detail
