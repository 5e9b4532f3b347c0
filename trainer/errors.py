"""The two ways in which training ends badly. Each message is one line, cause first, and says what to do."""

from __future__ import annotations


class TrainError(Exception):
    """The run failed. Exit status 1."""

    exit_status = 1


class TrainUsageError(TrainError):
    """Settings that cannot work, found before the first step; names the nearest that can. Exit status 2."""

    exit_status = 2
