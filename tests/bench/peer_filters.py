"""Run by conformance.py in the peer's own environment (datatrove 0.10.1): what each filter drops, rule by rule.

usage: peer_filters.py TEXTS.parquet OUT.parquet

A rule is asked alone, all others of its filter switched off, so that none hides behind an earlier one. Output: one
boolean column per family (the whole filter) and per rule, one row per text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)

GOPHER_OFF = dict.fromkeys(
    (
        "min_doc_words",
        "max_doc_words",
        "min_avg_word_length",
        "max_avg_word_length",
        "max_symbol_word_ratio",
        "max_bullet_lines_ratio",
        "max_ellipsis_lines_ratio",
        "max_non_alpha_words_ratio",
        "min_stop_words",
    )
)
REPETITION_OFF: dict[str, Any] = {
    **dict.fromkeys(("dup_line_frac", "dup_para_frac", "dup_line_char_frac", "dup_para_char_frac")),
    "top_n_grams": (),
    "dup_n_grams": (),
}
FINEWEB_OFF = {"line_punct_thr": -1.0, "short_line_thr": 2.0, "char_duplicates_ratio": 2.0, "new_line_ratio": 1e9}
C4_OFF = {"filter_lorem_ipsum": False, "filter_curly_bracket": False, "min_num_sentences": -1}
TOP = {2: 0.2, 3: 0.18, 4: 0.16}
DUPLICATES = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}


def filters() -> dict[str, tuple[Any, str | None]]:
    """Column -> (filter, the reason that counts; None: any)."""
    gopher = {
        "gopher_short_doc": {"min_doc_words": 50},
        "gopher_long_doc": {"max_doc_words": 100000},
        "gopher_below_avg_threshold": {"min_avg_word_length": 3},
        "gopher_above_avg_threshold": {"max_avg_word_length": 10},
        "gopher_too_many_hashes": {"max_symbol_word_ratio": 0.1},
        "gopher_too_many_ellipsis": {"max_symbol_word_ratio": 0.1},
        "gopher_too_many_bullets": {"max_bullet_lines_ratio": 0.9},
        "gopher_too_many_end_ellipsis": {"max_ellipsis_lines_ratio": 0.3},
        "gopher_below_alpha_threshold": {"max_non_alpha_words_ratio": 0.8},
        "gopher_enough_stop_words": {"min_stop_words": 2},
    }
    repetition: dict[str, dict[str, Any]] = {
        "gopher_rep_dup_para_frac": {"dup_para_frac": 0.3},
        "gopher_rep_dup_para_char_frac": {"dup_para_char_frac": 0.2},
        "gopher_rep_dup_line_frac": {"dup_line_frac": 0.3},
        "gopher_rep_dup_line_char_frac": {"dup_line_char_frac": 0.2},
        **{f"gopher_rep_top_{n}_gram_char_frac": {"top_n_grams": ((n, bound),)} for n, bound in TOP.items()},
        **{f"gopher_rep_dup_{n}_gram_char_frac": {"dup_n_grams": ((n, bound),)} for n, bound in DUPLICATES.items()},
    }
    fineweb = {
        "fineweb_line_punct_ratio": {"line_punct_thr": 0.12},
        "fineweb_short_line_ratio": {"short_line_thr": 0.67},
        "fineweb_char_dup_ratio": {"char_duplicates_ratio": 0.01},
        "fineweb_list_ratio": {"new_line_ratio": 0.3},
    }
    c4: dict[str, dict[str, Any]] = {
        "c4_lorem_ipsum": {"filter_lorem_ipsum": True},
        "c4_curly_bracket": {"filter_curly_bracket": True},
        "c4_sentences": {"min_num_sentences": 5},
    }
    return {
        "gopher quality": (GopherQualityFilter(), None),
        "gopher repetition": (GopherRepetitionFilter(), None),
        "c4": (C4QualityFilter(), None),
        "fineweb": (FineWebQualityFilter(), None),
        **{
            name: (GopherQualityFilter(**{**GOPHER_OFF, **on}), name if "max_symbol_word_ratio" in on else None)
            for name, on in gopher.items()
        },
        **{name: (GopherRepetitionFilter(**{**REPETITION_OFF, **on}), None) for name, on in repetition.items()},
        **{name: (C4QualityFilter(**{**C4_OFF, **on}), None) for name, on in c4.items()},
        **{name: (FineWebQualityFilter(**{**FINEWEB_OFF, **on}), None) for name, on in fineweb.items()},
    }


def drops(ask: Callable[[Document], Any], text: str, reason: str | None) -> bool:
    """Whether the filter drops the text; a text on which it raises is dropped with an error."""
    try:
        answer = ask(Document(text=text, id="x"))
    except (ZeroDivisionError, IndexError):
        return reason is None
    if isinstance(answer, tuple):
        return not answer[0] and reason in (None, answer[1])
    return not answer


def main(texts: str, out: str) -> None:
    asked = filters()
    rows = [
        {name: drops(one.filter, text, reason) for name, (one, reason) in asked.items()}
        for text in pq.read_table(texts)["text"].to_pylist()
    ]
    pq.write_table(pa.Table.from_pylist(rows), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
