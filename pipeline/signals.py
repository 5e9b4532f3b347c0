"""Every number that is measured on a document, and every rule that can judge it.

A *signal* is a column of `records/`; a *rule* is a named range over one signal, and its name is the rejection reason.
Bounds are not here: they come from the recipe. `basis` says what the signal is measured on: what extraction gave
(`text`), what line edits left (`edited`), or the page itself (`page`), which only extraction sees. Each quantity is
defined at the function that computes it, in pipeline/quality or pipeline/extract. A signal is null where it has no
meaning: no words to average over, no word list for the language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Basis = Literal["text", "edited", "page"]


@dataclass(frozen=True, slots=True)
class Signal:
    name: str
    kind: Literal["int", "float"]
    basis: Basis
    meaning: str


@dataclass(frozen=True, slots=True)
class Rule:
    """Keeps a document whose `signal` lies in the recipe's closed range; where it is null the rule does not apply."""

    name: str
    signal: str
    meaning: str


SIGNALS: tuple[Signal, ...] = (
    # Extraction: no rule of a known recipe, but what a report flags
    Signal("extract_confidence", "float", "page", "F1 that the engine expects of its text; null where it has no idea"),
    Signal("visible_ratio", "float", "page", "characters of the text / characters that a browser would show"),
    Signal("mojibake_score", "float", "text", "characters read with a wrong charset / characters"),
    Signal("n_chars", "int", "edited", "characters"),
    Signal("n_words", "int", "edited", "words, punctuation not counted"),
    Signal("n_letters", "int", "text", "letters outside web addresses: what language identification has to go by"),
    # Shape of the text: no rule of a known recipe, but input to the quality score
    Signal("letter_frac", "float", "edited", "letters / characters that are not white space"),
    Signal("upper_frac", "float", "edited", "upper-case letters / letters"),
    Signal("digit_frac", "float", "edited", "digits / characters that are not white space"),
    Signal("punct_frac", "float", "edited", "punctuation characters / characters that are not white space"),
    Signal("unique_word_frac", "float", "edited", "distinct words / words, mean over blocks of 100 words"),
    Signal("stop_word_frac", "float", "edited", "stop words of the document's language / words; null without a list"),
    Signal("mean_line_words", "float", "edited", "words per line that is not blank"),
    Signal("mean_sentence_words", "float", "edited", "words per sentence"),
    # Gopher quality
    Signal("gopher_words", "int", "text", "words with at least one character that is not punctuation"),
    Signal("gopher_mean_word_length", "float", "text", "mean length of those words"),
    Signal("gopher_hash_ratio", "float", "text", "# signs / words, punctuation counted as words"),
    Signal("gopher_ellipsis_ratio", "float", "text", "ellipses / words, punctuation counted as words"),
    Signal("gopher_bullet_lines_frac", "float", "text", "lines that begin with a bullet"),
    Signal("gopher_ellipsis_lines_frac", "float", "text", "lines that end in an ellipsis"),
    Signal("gopher_alpha_words_frac", "float", "text", "words with a letter / words, punctuation counted as words"),
    Signal("gopher_stop_words", "int", "text", "distinct stop words of the document's language; null without a list"),
    # Gopher repetition
    Signal("gopher_rep_dup_para_frac", "float", "text", "repeated paragraphs / paragraphs"),
    Signal("gopher_rep_dup_para_char_frac", "float", "text", "characters of repeated paragraphs / characters"),
    Signal("gopher_rep_dup_line_frac", "float", "text", "repeated lines / lines"),
    Signal("gopher_rep_dup_line_char_frac", "float", "text", "characters of repeated lines / characters"),
    *(
        Signal(f"gopher_rep_top_{n}_gram_char_frac", "float", "text", f"characters of the top {n}-gram / characters")
        for n in (2, 3, 4)
    ),
    *(
        Signal(f"gopher_rep_dup_{n}_gram_char_frac", "float", "text", f"characters of repeated {n}-grams / characters")
        for n in (5, 6, 7, 8, 9, 10)
    ),
    # C4
    Signal("c4_page_chars", "int", "text", "characters of the page before line edits"),
    Signal("c4_lorem_ipsum", "int", "edited", "surviving lines that hold 'lorem ipsum'"),
    Signal("c4_curly_bracket", "int", "edited", "surviving lines that hold a '{'"),
    Signal("c4_sentences", "int", "edited", "sentences, counted line by line"),
    Signal("c4_long_lines", "int", "edited", "lines of 200 characters and more"),
    Signal("c4_bad_words", "int", "edited", "distinct bad words of the document's language; null without a list"),
    # FineWeb
    Signal("fineweb_lines", "int", "edited", "lines that are not blank"),
    Signal("fineweb_line_punct_ratio", "float", "edited", "lines that end in terminal punctuation / lines"),
    Signal("fineweb_short_line_ratio", "float", "edited", "lines of 30 characters or fewer / lines"),
    Signal("fineweb_char_dup_ratio", "float", "edited", "characters of repeated lines / characters"),
    Signal("fineweb_list_ratio", "float", "edited", "line feeds / words, punctuation counted as words"),
    # RefinedWeb
    Signal("refinedweb_words", "int", "text", "words, punctuation not counted"),
    Signal("refinedweb_mean_word_length", "float", "text", "mean length of words split at white space"),
    Signal("refinedweb_symbol_ratio", "float", "text", "# signs and ellipses / words"),
    Signal("refinedweb_bullet_lines_frac", "float", "text", "lines that begin with a bullet"),
    Signal("refinedweb_ellipsis_lines_frac", "float", "text", "lines that end in an ellipsis"),
    Signal("refinedweb_non_alpha_words_frac", "float", "text", "words without a letter / words"),
    Signal("refinedweb_stop_words", "int", "text", "stop words of the document's language; null without a list"),
    Signal("refinedweb_removed_words_frac", "float", "edited", "words that its line rules removed; null without them"),
    # Lines of other documents: null unless the recipe has edit.repeated_lines
    Signal(
        "repeated_line_ratio", "float", "edited", "characters in lines that many documents hold / characters in lines"
    ),
    Signal("repeated_line_chars", "int", "edited", "characters that the removal of repeated lines took"),
    Signal("quality_score", "float", "edited", "0 to 1, see pipeline/quality/score.py"),
)

#: Rules with the reference's own reason string where shared/rules.md gives one, else the name of their quantity.
RULES: tuple[Rule, ...] = (
    Rule("gopher_short_doc", "gopher_words", "too few words"),
    Rule("gopher_long_doc", "gopher_words", "too many words"),
    Rule("gopher_below_avg_threshold", "gopher_mean_word_length", "words too short"),
    Rule("gopher_above_avg_threshold", "gopher_mean_word_length", "words too long"),
    Rule("gopher_too_many_hashes", "gopher_hash_ratio", "too many # signs"),
    Rule("gopher_too_many_ellipsis", "gopher_ellipsis_ratio", "too many ellipses"),
    Rule("gopher_too_many_bullets", "gopher_bullet_lines_frac", "too many lines with bullets"),
    Rule("gopher_too_many_end_ellipsis", "gopher_ellipsis_lines_frac", "too many lines that end in an ellipsis"),
    Rule("gopher_below_alpha_threshold", "gopher_alpha_words_frac", "too few words with a letter"),
    Rule("gopher_enough_stop_words", "gopher_stop_words", "too few stop words"),
    *(
        Rule(s.name, s.name, s.meaning)
        for s in SIGNALS
        if s.name.startswith(("gopher_rep_", "c4_", "fineweb_", "refinedweb_")) and s.name != "fineweb_lines"
    ),
    Rule("fineweb_empty", "fineweb_lines", "no line that is not blank"),
    Rule("repeated_line_ratio", "repeated_line_ratio", "too much of it stands in other documents"),
    Rule("quality_score", "quality_score", "the document's quality score"),
)

SIGNAL_NAMES = frozenset(s.name for s in SIGNALS)
RULES_BY_NAME = {r.name: r for r in RULES}
