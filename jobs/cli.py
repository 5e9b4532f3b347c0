"""The `gristmill` command: one verb per module, each with `add_arguments(parser)` and `run(args) -> status`."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import traceback
from collections.abc import Sequence

from pipeline.errors import INTERRUPTED, GristmillError, UsageError, first_line, one_line
from pipeline.recipe import nearest

#: verb -> (module, one line of help). A module is imported only when its verb is called: Spark and torch are slow.
VERBS: dict[str, tuple[str, str]] = {
    "sample": ("jobs.sample", "write a small, realistic crawl segment to try things on"),
    "curate": ("jobs.curate", "the main job: crawl segments in, Parquet shards and an honest funnel out"),
    "report": ("jobs.report", "print a run's funnel, write its HTML report"),
    "why": ("jobs.why", "one record's way through a run: every signal, rule and duplicate"),
    "rules": ("jobs.rules", "what-if: the funnel under other thresholds, from stored signals"),
    "dups": ("jobs.dups", "a run's clusters of duplicates"),
    "export": ("jobs.export", "rejected or kept rows as JSON lines"),
    "inspect": ("jobs.inspection", "curated runs as training batches: lengths, mixture, packing, speed"),
    "batch": ("jobs.batch", "the documents in one step of training, with text and address"),
    "train": ("jobs.train", "train a model on curated runs, or go on with one, on any number of processes"),
    "replay": ("jobs.replay", "one step of a training run again, under anomaly detection"),
    "export-model": ("jobs.export_model", "a checkpoint as safetensors that Hugging Face loads"),
    "verify": ("jobs.verify", "every way of splitting a training against one process, in one table"),
}

#: A GristmillError that was raised inside a Spark task arrives wrapped in pages of Spark's own.
_TOLD_BY_A_TASK = re.compile(r"^pipeline\.errors\.\w+: (.+)$", re.MULTILINE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; 0 = done, 1 = the run failed, 2 = wrong usage or recipe."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in VERBS:
        print(f"gristmill: unknown command {arguments[0]!a}{nearest(arguments[0], VERBS)}", file=sys.stderr)
        return 2
    if not arguments:
        _parser(None).print_help(sys.stderr)
        return 2
    verb = arguments[0] if arguments and arguments[0] in VERBS else None
    try:
        args = _parser(verb).parse_args(arguments)
    except SystemExit as stop:  # argparse's own way to end; tests and notebooks call main()
        return int(stop.code or 0)
    return guarded(args)


def guarded(args: argparse.Namespace) -> int:
    """Run the chosen verb; what goes wrong becomes one line on stderr (and a traceback under GRISTMILL_DEBUG=1)."""
    INTERRUPTED.clear()
    try:
        _require_utf8(args)
        return int(args.run(args))
    except GristmillError as error:
        message, status = str(error), error.exit_status
    except KeyboardInterrupt:
        INTERRUPTED.set()
        message, status = "", 130
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # the reader (head, less) has gone: nothing to say
        return 0
    except Exception as error:
        told = _TOLD_BY_A_TASK.search(str(error))
        where = "(GRISTMILL_DEBUG=1 shows where)"
        message, status = told[1] if told else f"{type(error).__name__}: {first_line(error)} {where}", 1
    if INTERRUPTED.is_set():
        message, status = "interrupted; the same command goes on where this one stopped", 130
    if os.environ.get("GRISTMILL_DEBUG"):
        traceback.print_exc()
    print(f"gristmill: {one_line(message)}", file=sys.stderr)
    return status


def _require_utf8(args: argparse.Namespace) -> None:
    """Names and addresses are stored as text, and bytes that are no UTF-8 are none."""
    for value in vars(args).values():
        for text in value if isinstance(value, list) else [value]:
            try:
                str(text).encode()
            except UnicodeEncodeError:
                raise UsageError(f"{text}: not UTF-8; give the file or folder a name that is") from None


def single(module: str, argv: Sequence[str] | None = None) -> int:
    """One verb as a script of its own, for `spark-submit jobs/VERB.py …`."""
    job = importlib.import_module(module)
    parser = argparse.ArgumentParser(prog=module, description=job.__doc__)
    job.add_arguments(parser)
    parser.set_defaults(run=job.run)
    return guarded(parser.parse_args(argv))


def _parser(verb: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gristmill", description="Crawl segments in, training data out.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, line) in VERBS.items():
        command = commands.add_parser(name, help=line, description=line)
        if name == verb:
            job = importlib.import_module(module)
            job.add_arguments(command)
            command.set_defaults(run=job.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
