"""The README against the code: every name that a user may write or meet is in it, and every one in it exists."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from jobs.cli import VERBS, _parser
from pipeline import datasets, recipe
from pipeline.crawl.urls import builtin_lists
from pipeline.quality.score import PIECES, fitted_weights
from pipeline.run.keys import RECIPE_KEYS
from pipeline.signals import RULES, RULES_BY_NAME, SIGNAL_NAMES, SIGNALS

PROJECT = Path(__file__).resolve().parents[1]
README = (PROJECT / "README.md").read_text("utf-8")

#: What the README calls the work that a changed key of a stage causes.
REDOES = {
    "extract": "read",
    "measure": "measure",
    "lines": "lines",
    "judge": "judge",
    "decontaminate": "match",
    "dedup": "dedup",
    "shingles": "shingles",
    "publish": "publish",
}
#: Keys that no stage's key lists under this name.
OTHER_KEYS = {"input.crawl": "read", "keep_text": "†", "decontaminate.benchmarks": "match"}
#: Models of named things: the name is the user's.
NAMED = (recipe.Range, recipe.Benchmark)


def section(title: str) -> str:
    """The text under a heading, up to the next heading of the same or a higher level."""
    heading = re.search(rf"^(#+) {re.escape(title)}$", README, re.MULTILINE)
    assert heading, f"the README has no heading {title!r}"
    rest = README[heading.end() :]
    end = re.search(rf"^#{{1,{len(heading[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str) -> list[list[str]]:
    """Cells of the table rows that begin with a name in backticks."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def names(text: str) -> list[str]:
    """The name that begins each table row."""
    return [row[0].strip("`") for row in rows(text)]


def leaves(model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> default of everything that a recipe can set."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        choices = (field.annotation, *getattr(field.annotation, "__args__", ()))
        inner = [c for c in choices if isinstance(c, type) and issubclass(c, BaseModel) and c not in NAMED]
        if inner:
            found |= leaves(inner[0], f"{prefix}{name}.")
        else:
            found[prefix + name] = field.get_default(call_default_factory=True)
    return found


KEYS = leaves(recipe.Recipe)


def test_every_recipe_key_stands_in_the_table_with_its_default() -> None:
    table = {row[0].strip("`"): row[1].strip("`") for row in rows(section("Keys"))}
    assert list(table) == list(KEYS)
    for key, text in table.items():
        shown = None if text == "none" else tomllib.loads(f"value = {text}")["value"]
        default = list(KEYS[key]) if isinstance(KEYS[key], tuple) else KEYS[key]
        assert shown == default, key


def test_the_table_says_what_each_key_redoes() -> None:
    for key, _, redoes, *_ in rows(section("Keys")):
        key = key.strip("`")
        stages = [s for s, paths in RECIPE_KEYS.items() if any(f"{key}.".startswith(f"{path}.") for path in paths)]
        expected = REDOES[stages[0]] if stages else OTHER_KEYS.get(key, "nothing")
        assert redoes == expected, key


def test_dotted_names_exist() -> None:
    """`section.key` in backticks anywhere, `--set section.key=...` too."""
    known = {*KEYS, *(key.rpartition(".")[0] for key in KEYS)}
    rule = re.compile(r"quality\.rules\.(NAME|\w+)(\.(min|max|…))?")
    benchmark = re.compile(r"decontaminate\.benchmarks\.(NAME|gsm8k)(\.(\w+))?")
    other = re.compile(r"inputs\.(\w+)")
    sections = "|".join(recipe.Recipe.model_fields)
    found = re.findall(rf"[`'\s]((?:{sections}|inputs)(?:\.[a-z_0-9A-Z]+)+)(?=[`=\s])", README)
    assert len(found) > len(KEYS)
    for name in found:
        if match := rule.fullmatch(name):
            assert match[1] == "NAME" or match[1] in RULES_BY_NAME, name
        elif match := benchmark.fullmatch(name):
            assert match[3] is None or match[3] in recipe.Benchmark.model_fields, name
        elif match := other.fullmatch(name):
            assert match[1] in datasets.INPUTS.names, name
        else:
            assert name in known, name


def test_presets() -> None:
    assert names(section("Presets")) == list(recipe.PRESETS)
    for name, engine, language, *_ in rows(section("Presets")):
        preset = recipe.load(name.strip("`"))
        assert engine.startswith(preset.extract.engine)
        assert (f"> {preset.language.min_score:g}" in language) == bool(preset.language.allowed)


def test_shipped_url_lists() -> None:
    assert [name for name in builtin_lists() if f"`{name}`" not in README] == []


def test_signals() -> None:
    table = section("Signals and rules").partition("### Rules")[0]
    assert {row[0].strip("`"): tuple(row[1:3]) for row in rows(table)} == {s.name: (s.kind, s.basis) for s in SIGNALS}


def bounds(preset: str, rule: str) -> str | None:
    kept = recipe.load(preset).quality.rules.get(rule)
    if kept is None:
        return None
    return " and ".join(f"{sign} {b:.15g}" for sign, b in (("≥", kept.min), ("≤", kept.max)) if b is not None)


def test_rules_with_their_signals_and_bounds() -> None:
    table = rows(section("Rules and what they follow"))
    assert sorted(row[0].strip("`") for row in table) == sorted(r.name for r in RULES)
    for name, signal, keeps, *_ in table:
        rule = name.strip("`")
        assert signal.strip("`") == RULES_BY_NAME[rule].signal
        shown = {
            preset: entry[0] for entry in re.findall(r"([^;(]+?) \(([^)]*)\)", keeps) for preset in entry[1].split(", ")
        }
        expected = {preset: found for preset in recipe.PRESETS if (found := bounds(preset, rule))}
        assert {preset: text.strip("; ") for preset, text in shown.items()} == expected, rule


def test_reasons_in_order() -> None:
    shown: dict[str, list[str]] = {}
    for stage, reason, _ in rows(section("Verdicts")):
        shown.setdefault(stage.strip("`"), []).append(reason.strip("`"))
    expected = {stage: list(reasons) for stage, reasons in datasets.REASONS.items()}
    assert shown == expected | {"quality": ["the rule's name"], "decontaminate": ["the benchmark's name"]}


@pytest.mark.parametrize(
    ("dataset", "columns"),
    [
        ("inputs", datasets.INPUTS.names),
        ("records", [name for name in datasets.RECORDS.names if name not in SIGNAL_NAMES]),
        ("verdicts", datasets.VERDICTS.names),
        ("lines", datasets.LINES.names),
        ("contaminated", datasets.CONTAMINATED.names),
        ("duplicates", datasets.DUPLICATES.names),
        ("shingles", datasets.SHINGLES.names),
        ("shards", datasets.shards_schema(n_tokens=True, tokens=True).names),
    ],
)
def test_columns_in_order(dataset: str, columns: list[str]) -> None:
    assert names(section(f"`{dataset}/`")) == columns


def test_verbs() -> None:
    assert names(section("Quick start")) == list(VERBS)


def test_the_score_table_is_the_score() -> None:
    fitted = fitted_weights()
    table = rows(section("The quality score"))
    assert [row[0].strip("`") for row in table] == [piece.signal for piece in PIECES]
    assert [float(row[1]) for row in table] == list(fitted.weights)
    for row, piece in zip(table, PIECES, strict=True):
        assert row[2] == ", ".join(f"{x:g} → {y:g}" for x, y in zip(piece.x, piece.y, strict=True))
    assert f"b is {fitted.intercept:g}" in README


def commands() -> list[list[str]]:
    """Words of every shell command in the README's bash blocks."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("words", [c for c in commands() if c[0] == "gristmill"], ids=" ".join)
def test_commands_parse(words: list[str]) -> None:
    args = _parser(words[1]).parse_args(words[1:])
    preset = getattr(args, "recipe", "fineweb")
    recipe.load(preset, getattr(args, "overrides", []))


def test_submitted_jobs_parse() -> None:
    submitted = [c for c in commands() if any(word.startswith("jobs/") for word in c)]
    assert submitted
    for words in submitted:
        assert "infra/spark-submit" in words
        _parser("curate").parse_args(["curate", *words[words.index("jobs/curate.py") + 1 :]])


def test_files_exist() -> None:
    named = re.findall(r"(?<![\w/.])((?:infra|pipeline|jobs|tests)/[\w/.-]+\w)", README)
    assert named
    assert [name for name in named if not (PROJECT / name).exists()] == []
    modules = re.findall(r"python -m ([\w.]+)", README)
    assert modules
    assert [m for m in modules if not (PROJECT / (m.replace(".", "/") + ".py")).exists()] == []


def test_the_recipe_shown_is_valid(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    path = tmp_path / "mine.toml"
    path.write_text(block)
    shown = recipe.load(str(path))
    assert list(shown.quality.rules)[-1] == "quality_score"
    assert "c4_sentences" not in shown.quality.rules
