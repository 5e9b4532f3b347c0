"""One pass over `records/` and `verdicts/`: everything that the funnel, the rule table and the breakdowns are made of.

Columns are read without any text; memory is bounded by the number of different lengths, hosts and reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import datasets
from pipeline.errors import GristmillError
from pipeline.recipe import Recipe
from pipeline.report.copies import Copies, texts_of
from pipeline.report.counting import Breakdown, Integers, Lengths, Sample
from pipeline.report.reading import Run
from pipeline.signals import RULES_BY_NAME, SIGNALS

#: Where a record ended: the index of its stage, or KEPT.
KEPT = len(datasets.STAGES)
STAGE_INDEX = {stage: index for index, stage in enumerate(datasets.STAGES)}
LANGUAGE, QUALITY, DEDUP = STAGE_INDEX["language"], STAGE_INDEX["quality"], STAGE_INDEX["dedup"]

#: Columns of a Breakdown's vector: records by where they ended (0..KEPT), then words of all and of kept records.
WORDS, WORDS_KEPT = KEPT + 1, KEPT + 2
BREAKDOWN_WIDTH = KEPT + 3

DIMENSIONS = ("lang", "host", "charset", "charset_source", "mime", "extractor")
SAMPLES = 10
#: Columns between 0 and 1 whose distribution over all documents is counted
SCORES = ("lang_score", "quality_score", "extract_confidence", "visible_ratio")
SCORE_BINS = 20
#: What is flagged: less of the visible text, or more characters of a wrong charset, than nearly any sound page has
LOW_VISIBLE, HIGH_MOJIBAKE = 0.05, 0.02
_SIGNALS_SAMPLED = 4000
_BATCH = 32_768


@dataclass
class RuleCounts:
    """One rule over the records that entered its stage. `applicable + absent` = all of them."""

    applicable: int = 0
    absent: int = 0  #: its signal is null: the rule says nothing
    fires: int = 0
    first: int = 0  #: it gave the verdict
    sole: int = 0  #: no other rule fails: without it, the record would have gone on
    absent_languages: Counter[str] = field(default_factory=Counter)

    @property
    def entered(self) -> int:
        return self.applicable + self.absent


@dataclass
class Survey:
    """What one pass counted. `reasons`: (stage, reason) -> [records, characters, words]; kept is ('kept', '')."""

    rule_names: list[str]
    records: int = 0
    reasons: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    lengths: list[Lengths] = field(default_factory=lambda: [Lengths() for _ in range(KEPT + 1)])
    breakdowns: dict[str, Breakdown] = field(default_factory=dict)
    rules: dict[str, RuleCounts] = field(default_factory=dict)
    overlap: Integers = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    scores: dict[str, Integers] = field(
        default_factory=lambda: {name: np.zeros(SCORE_BINS, np.int64) for name in SCORES}
    )
    unscored: Counter[str] = field(default_factory=Counter)
    low_visible: list[int] = field(default_factory=lambda: [0, 0])  #: documents, and kept ones
    high_mojibake: list[int] = field(default_factory=lambda: [0, 0])
    with_text: int = 0
    repeated_lines: list[int] = field(default_factory=lambda: [0, 0])  #: documents that hold some, that lost some
    repeated_chars: list[int] = field(default_factory=lambda: [0, 0])  #: characters removed, characters before
    copies: Copies = field(default_factory=Copies)  #: of kept documents
    samples: Sample = field(default_factory=lambda: Sample(SAMPLES))
    signal_sample: pa.Table | None = None

    @property
    def kept(self) -> int:
        return self.reasons.get(("kept", ""), [0])[0]

    def ended(self, stage: int) -> int:
        """Records whose verdict is of this stage (index; KEPT = kept)."""
        name = "kept" if stage == KEPT else datasets.STAGES[stage]
        return sum(numbers[0] for (s, _), numbers in self.reasons.items() if s == name)

    def entered(self, stage: int) -> int:
        return sum(self.ended(s) for s in range(stage, KEPT + 1))

    def surviving(self, stage: int) -> Lengths:
        """Lengths in words of the records with text that left `stage` alive (entered it: stage - 1)."""
        result = Lengths()
        for s in range(stage + 1, KEPT + 1):
            result.update(self.lengths[s])
        return result


def take(run: Run) -> Survey:
    """Count a finished run. Raises GristmillError where verdicts do not fit their records."""
    survey = Survey(rule_names=rule_names(run.recipe))
    survey.rules = {name: RuleCounts() for name in survey.rule_names}
    survey.overlap = np.zeros((len(survey.rule_names),) * 2, np.int64)
    survey.breakdowns = {name: Breakdown(BREAKDOWN_WIDTH) for name in DIMENSIONS}
    columns = ["record_id", *DIMENSIONS, "crawl", "exact_hash", "lang_score", *(s.name for s in SIGNALS)]
    for part, first_row, records, verdicts in run.judged(columns, _BATCH):
        _count(survey, records, verdicts, part, first_row)
        survey.copies.add(texts_of(records.filter(verdicts["kept"]), run.recipe.dedup))
    return survey


def rule_names(recipe: Recipe) -> list[str]:
    """Every reason of `language` and `quality` that the recipe can give, in recipe order."""
    return [*datasets.REASONS["language"], *recipe.quality.rules]


def ends(verdicts: pa.RecordBatch) -> Integers:
    """Each row's index of the stage where it ended, KEPT for kept ones."""
    encoded = pc.dictionary_encode(verdicts["stage"], null_encoding="encode")
    try:
        codes = [KEPT if name is None else STAGE_INDEX[name] for name in encoded.dictionary.to_pylist()]
    except KeyError as error:
        raise GristmillError(f"verdicts/ name a stage {error} that this version does not know") from None
    return np.array(codes, np.int64)[np.asarray(encoded.indices)] if codes else np.empty(0, np.int64)


def failing(verdicts: pa.RecordBatch, names: Mapping[str, int]) -> npt.NDArray[np.bool_]:
    """Matrix (rows, rules): which rules each row fails, from `failed_rules`."""
    lists = verdicts["failed_rules"]
    matrix = np.zeros((len(lists), len(names)), np.bool_)
    flat = pc.dictionary_encode(pc.list_flatten(lists))
    try:
        codes = np.array([names[name] for name in flat.dictionary.to_pylist()], np.int64)
    except KeyError as error:
        raise GristmillError(f"verdicts/ name a rule {error} that the run's recipe has not") from None
    if len(flat):
        matrix[np.asarray(pc.list_parent_indices(lists)), codes[np.asarray(flat.indices)]] = True
    return matrix


def _count(survey: Survey, records: pa.RecordBatch, verdicts: pa.RecordBatch, part: int, first_row: int) -> None:
    stages = ends(verdicts)
    words = _integers(records["n_words"])
    chars = _integers(records["n_chars"])
    has_text = np.asarray(records["n_words"].is_valid())
    survey.records += len(stages)
    survey.with_text += int(has_text.sum())
    _count_reasons(survey, records, verdicts, chars, words, part, first_row)
    for stage in np.unique(stages):
        survey.lengths[stage].add(words[(stages == stage) & has_text])
    numbers = np.zeros((len(stages), BREAKDOWN_WIDTH), np.int64)
    numbers[np.arange(len(stages)), stages] = 1
    numbers[:, WORDS] = words
    numbers[:, WORDS_KEPT] = np.where(stages == KEPT, words, 0)
    for name, breakdown in survey.breakdowns.items():
        breakdown.add(records[name], numbers)
    for name in SCORES:
        _count_scores(survey, name, records[name], has_text)
    for flagged, bad in (
        (survey.low_visible, pc.less(records["visible_ratio"], LOW_VISIBLE)),
        (survey.high_mojibake, pc.greater(records["mojibake_score"], HIGH_MOJIBAKE)),
    ):
        odd = np.asarray(pc.fill_null(bad, False))
        flagged[0] += int(odd.sum())
        flagged[1] += int((odd & (stages == KEPT)).sum())
    for i, number in enumerate(_repeated(records)):
        survey.repeated_lines[i] += number
    taken = _integers(records["repeated_line_chars"])
    survey.repeated_chars[0] += int(taken.sum())
    survey.repeated_chars[1] += int((taken + chars).sum())
    _count_rules(survey, records, verdicts, stages)
    _sample_signals(survey, records, stages)


def _repeated(records: pa.RecordBatch) -> tuple[int, int]:
    """Records with lines of other documents, and those from which some were removed."""
    hold = pc.sum(pc.greater(records["repeated_line_ratio"], 0)).as_py() or 0
    lost = pc.sum(pc.greater(records["repeated_line_chars"], 0)).as_py() or 0
    return hold, lost


def _count_reasons(
    survey: Survey,
    records: pa.RecordBatch,
    verdicts: pa.RecordBatch,
    chars: Integers,
    words: Integers,
    part: int,
    first_row: int,
) -> None:
    pairs = pc.binary_join_element_wise(
        pc.fill_null(verdicts["stage"], "kept"), pc.fill_null(verdicts["reason"], ""), "\n"
    )
    encoded = pc.dictionary_encode(pairs)
    indices = np.asarray(encoded.indices)
    ids = records["record_id"]
    for code, pair in enumerate(encoded.dictionary.to_pylist()):
        stage, reason = pair.split("\n", 1)
        rows = np.flatnonzero(indices == code)
        numbers = survey.reasons.setdefault((stage, reason), [0, 0, 0])
        numbers[0] += len(rows)
        numbers[1] += int(chars[rows].sum())
        numbers[2] += int(words[rows].sum())
        key = f"{stage}/{reason}" if reason else stage
        survey.samples.add(key, ids.take(pa.array(rows)).to_pylist(), part, (first_row + rows).tolist())


def _count_scores(survey: Survey, name: str, scores: pa.Array, has_text: npt.NDArray[np.bool_]) -> None:
    values = np.asarray(pc.fill_null(scores, np.nan), float)[has_text]
    known = values[np.isfinite(values)]
    bins = np.clip((known * SCORE_BINS).astype(np.int64), 0, SCORE_BINS - 1)
    survey.scores[name] += np.bincount(bins, minlength=SCORE_BINS)
    survey.unscored[name] += len(values) - len(known)


def _count_rules(survey: Survey, records: pa.RecordBatch, verdicts: pa.RecordBatch, stages: Integers) -> None:
    index = {name: i for i, name in enumerate(survey.rule_names)}
    matrix = failing(verdicts, index)
    alone = matrix.sum(axis=1) == 1
    encoded = pc.dictionary_encode(pc.fill_null(verdicts["reason"], ""))
    reasons = np.asarray(encoded.indices)
    codes = {name: i for i, name in enumerate(encoded.dictionary.to_pylist())}
    entered_quality = stages >= QUALITY
    judged = matrix[entered_quality].astype(np.float64)  # BLAS multiplies floats; exact below 2**53
    survey.overlap += (judged.T @ judged).astype(np.int64)
    for name, column in index.items():
        rule = RULES_BY_NAME.get(name)
        entered = stages >= (QUALITY if rule else LANGUAGE)
        present = np.asarray(records[rule.signal].is_valid()) if rule else np.ones(len(stages), np.bool_)
        counts = survey.rules[name]
        counts.applicable += int((entered & present).sum())
        absent = entered & ~present
        counts.absent += int(absent.sum())
        counts.fires += int((matrix[:, column] & entered).sum())
        counts.sole += int((matrix[:, column] & entered & alone).sum())
        if name in codes:
            counts.first += int(((reasons == codes[name]) & (stages == (QUALITY if rule else LANGUAGE))).sum())
        if absent.any():
            languages = pc.fill_null(records["lang"].filter(pa.array(absent)), "und")
            for entry in pc.value_counts(languages).to_pylist():
                counts.absent_languages[entry["values"]] += entry["counts"]


def _sample_signals(survey: Survey, records: pa.RecordBatch, stages: Integers) -> None:
    """Signals of the judged records with the smallest ids: ids are hashes, so this is a fair and stable sample."""
    chosen = pa.Table.from_batches([records]).select(["record_id", *(s.name for s in SIGNALS)])
    chosen = chosen.append_column("kept", pa.array(stages == KEPT)).filter(pa.array(stages >= QUALITY))
    if survey.signal_sample is not None:
        chosen = pa.concat_tables([survey.signal_sample, chosen])
    survey.signal_sample = chosen.take(pc.sort_indices(chosen["record_id"])[:_SIGNALS_SAMPLED]).combine_chunks()


def _integers(column: pa.Array) -> Integers:
    return np.asarray(pc.fill_null(column, 0), np.int64)


def as_python(value: Any) -> Any:
    """numpy scalars and arrays as plain Python, for JSON."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
