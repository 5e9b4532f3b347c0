"""The share of wrongly decoded characters: none in sound text of any script, much in every common wrong decoding."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.quality.mojibake import score
from pipeline.text import measure

GERMAN = "Größe ändern – „Zitat“ für Bücher, l’été où ça « va »; naïveté, ÀÉÎ, ESPAÑA…"
RUSSIAN = "Привет, мир! Это русский текст о том, как СССР и Россия читают газеты."
CHINESE = "中文网页内容很多,读者也很多。"


@pytest.mark.parametrize(
    "text", ["", "plain", GERMAN, RUSSIAN, CHINESE, "ελληνικά κείμενα", "ข้อความภาษาไทย", "20 °C, ½ ¼ ±3 µm"]
)
def test_sound_text_has_none(text: str) -> None:
    assert not score(measure(text))


@pytest.mark.parametrize(
    ("text", "written", "read", "least"),
    [
        (GERMAN, "utf-8", "cp1252", 0.3),
        (GERMAN, "utf-8", "latin-1", 0.3),
        (RUSSIAN, "utf-8", "cp1252", 0.8),
        (RUSSIAN, "utf-8", "cp1251", 0.5),
        (RUSSIAN, "cp1251", "latin-1", 0.5),
        (RUSSIAN, "koi8-r", "cp1251", 0.05),
        (RUSSIAN, "cp1251", "koi8-r", 0.05),
        (CHINESE, "gbk", "latin-1", 0.3),
        (CHINESE, "utf-8", "cp1252", 0.8),
        (RUSSIAN, "cp1251", "utf-8", 0.4),
    ],
)
def test_wrong_decodings_show(text: str, written: str, read: str, least: float) -> None:
    value = score(measure(text.encode(written).decode(read, "replace")))
    assert value is not None
    assert least < value <= 1


def test_a_little_is_a_little() -> None:
    value = score(measure("word " * 199 + "caf\ufffd"))
    assert value == pytest.approx(1 / 999)


def test_sound_texts_of_five_hundred_languages(shared_data: Path) -> None:
    """The Universal Declaration: no sound text reaches the bound at which a document is flagged."""
    from pipeline.report.survey import HIGH_MOJIBAKE

    high = {}
    for path in sorted((shared_data / "lid" / "udhr").rglob("*.txt")):
        value = score(measure(path.read_text("utf-8", "replace"))) or 0.0
        if value > HIGH_MOJIBAKE / 4:
            high[path.name] = value
    assert not high
