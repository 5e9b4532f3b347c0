"""Documents that grow one step at a time, one kind per rule: at some step what the rule asks tips over."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

_SYLLABLES = ("ka", "le", "mi", "no", "ru", "sa", "ti", "vo", "xe", "zu")


def word(i: int) -> str:
    """The i-th of 10,000 made-up words of eight letters, all different."""
    return "".join(_SYLLABLES[int(d)] for d in f"{i:04d}")


def words(n: int, start: int = 0) -> str:
    return " ".join(word(start + i) for i in range(n))


def lines(n: int, end: str = "", per_line: int = 8) -> list[str]:
    return [words(per_line, per_line * i) + end for i in range(n)]


def all_words(n: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join("".join(t) for t, _ in zip(product(letters, repeat=5), range(n), strict=False))


def _repeated(unit: str, n: int, joint: str = "\n") -> str:
    """Forty different lines of which the first n are followed by a copy of `unit`."""
    out = []
    for i, line in enumerate(lines(60, per_line=4)):
        out.append(line)
        if i < n:
            out.append(unit)
    return joint.join(out)


def _gram(k: int) -> Callable[[int], str]:
    return lambda n: _repeated(words(k, 9000), n, " ")


#: Rule -> document of step n; small steps pass, some larger one fails.
GROWING: dict[str, Callable[[int], str]] = {
    "gopher_short_doc": lambda n: words(60 - n),
    "gopher_long_doc": lambda n: all_words(99_998 + n),
    "gopher_below_avg_threshold": lambda n: " ".join(["abcd"] * 10 + ["ab"] * n),
    "gopher_above_avg_threshold": lambda n: " ".join(["abcdefghi"] * 10 + ["abcdefghijkl"] * n),
    "gopher_too_many_hashes": lambda n: words(30) + " #" * n,
    "gopher_too_many_ellipsis": lambda n: words(30) + " …" * n,
    "gopher_too_many_bullets": lambda n: "\n".join(["- " * (i < n) + line for i, line in enumerate(lines(20))]),
    "gopher_too_many_end_ellipsis": lambda n: "\n".join([line + "..." * (i < n) for i, line in enumerate(lines(20))]),
    "gopher_below_alpha_threshold": lambda n: words(30) + " 7" * n,
    "gopher_enough_stop_words": lambda n: words(30) + " the of and"[: [11, 7, 4, 0][n]],
    "gopher_rep_dup_para_frac": lambda n: _repeated("short", n, "\n\n"),
    "gopher_rep_dup_para_char_frac": lambda n: _repeated(words(20, 9000), n, "\n\n"),
    "gopher_rep_dup_line_frac": lambda n: _repeated("short", n),
    "gopher_rep_dup_line_char_frac": lambda n: _repeated(words(20, 9000), n),
    **{f"gopher_rep_top_{k}_gram_char_frac": _gram(k) for k in (2, 3, 4)},
    **{f"gopher_rep_dup_{k}_gram_char_frac": _gram(k) for k in (5, 6, 7, 8, 9, 10)},
    "c4_page_chars": lambda n: "a" * (189_998 + n),
    "c4_lorem_ipsum": lambda n: "\n".join(lines(9, ".")) + "\nHere is lorem ipsum again." * n,
    "c4_curly_bracket": lambda n: "\n".join(lines(9, ".")) + "\nfunction of it all {." * n,
    "c4_sentences": lambda n: "\n".join(lines(9 - n, ".")),
    "c4_long_lines": lambda n: "\n".join("x" * (200 - (i < n)) for i in range(5)),
    "c4_bad_words": lambda n: "\n".join(lines(9, ".")) + "\nThis is some shit here." * n,
    "fineweb_empty": lambda n: "word" * (n == 0),
    "fineweb_line_punct_ratio": lambda n: "\n".join(line + "." * (i >= n) for i, line in enumerate(lines(25))),
    "fineweb_short_line_ratio": lambda n: "\n".join(line[:30] if i < n else line for i, line in enumerate(lines(25))),
    "fineweb_char_dup_ratio": lambda n: "\n".join([*lines(25), "twice is it", *["twice is it"] * n]),
    "fineweb_list_ratio": lambda n: words(30) + "\nword" * n,
    "refinedweb_words": lambda n: words(60 - n),
    "refinedweb_mean_word_length": lambda n: " ".join(["abcdefghi"] * 10 + ["abcdefghijkl"] * n),
    "refinedweb_symbol_ratio": lambda n: words(30) + "#" * n,
    "refinedweb_bullet_lines_frac": lambda n: "\n".join(["* " * (i < n) + line for i, line in enumerate(lines(20))]),
    "refinedweb_ellipsis_lines_frac": lambda n: "\n".join(
        [line + " . . ." * (i < n) for i, line in enumerate(lines(20))]
    ),
    "refinedweb_non_alpha_words_frac": lambda n: words(30) + " 7" * n,
    "refinedweb_stop_words": lambda n: words(30) + " The the the"[: [12, 8, 4, 0][n]],
    "refinedweb_removed_words_frac": lambda n: "\n".join([*lines(25), *["SHOUTED OUT LOUD"] * n]),
}
