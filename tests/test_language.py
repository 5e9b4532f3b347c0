"""Cases 21, 23, 25, 26 and 27 of the acceptance list, on lid.176 and on stubs of a model."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import Rejected, UsageError
from pipeline.language import FLOOR_LETTERS, Identifier, check_allowed, load_model, script_share
from pipeline.recipe import Language, normal_label

ENGLISH = (
    "The ferry leaves the harbour at seven every morning.",
    "Nobody in the village had seen such a winter before.",
    "She put the letters back into the drawer and closed it.",
    "Water boils at a lower temperature high in the mountains.",
    "We walked along the river until it grew dark.",
    "The council voted to repair the old bridge next year.",
)
OTHERS = {
    "de": (
        "Der Zug nach Hamburg fährt heute von einem anderen Gleis ab.",
        "Im Garten hinter dem Haus wachsen Äpfel und Birnen.",
        "Sie hat gestern den ganzen Tag an ihrem Bericht gearbeitet.",
        "Die Kinder spielten am Ufer, bis es zu regnen begann.",
    ),
    "fr": (
        "Le marché se tient chaque samedi sur la place de l'église.",
        "Nous avons attendu le bus pendant plus d'une heure.",
        "Elle préfère lire le soir, quand la maison est calme.",
        "Les ouvriers ont terminé le nouveau pont avant l'hiver.",
    ),
    "es": (
        "El panadero abre la tienda antes de que salga el sol.",
        "Mañana iremos a visitar a mis abuelos en el campo.",
        "La lluvia ha llenado otra vez todos los ríos del valle.",
        "Todavía no sabemos quién ganó las elecciones de ayer.",
    ),
    "pl": (
        "Jutro rano pojedziemy pociągiem do mojej siostry.",
        "W tym roku zima przyszła znacznie wcześniej niż zwykle.",
        "Nauczyciel poprosił uczniów, żeby otworzyli książki.",
        "Stary most nad rzeką został zamknięty dla samochodów.",
    ),
    "it": (
        "La bottega del falegname si trova vicino alla stazione.",
        "Ogni domenica la famiglia si riunisce per il pranzo.",
        "Il treno per Firenze è arrivato con venti minuti di ritardo.",
        "Abbiamo trovato le chiavi sotto il tappeto della cucina.",
    ),
    "ru": (
        "Вчера вечером мы долго гуляли по старому городу.",
        "Поезд опоздал из-за сильного снегопада в горах.",
        "Она написала письмо своей сестре и положила его на стол.",
        "Летом дети каждый день ходили купаться на озеро.",
    ),
}
JAPANESE = (
    "昨日の夜、私たちは古い町を長い間歩きました。電車は雪のために遅れて到着しました。"
    "夏になると子供たちは毎日湖へ泳ぎに行きます。"
)
HINDI = "कल शाम हम पुराने शहर में बहुत देर तक घूमते रहे। बर्फ़ के कारण रेलगाड़ी देर से पहुँची। गर्मियों में बच्चे हर दिन झील में तैरने जाते थे। "
DANISH = ("Børnene legede i haven hele dagen.", "Vi kører til stranden i morgen tidlig.", "Hvad hedder din søster?")
NORWEGIAN = ("Ungene lekte i hagen hele dagen.", "Vi kjører til stranda i morgen tidlig.", "Hva heter søsteren din?")
SWEDISH = ("Barnen lekte i trädgården hela dagen.", "Vi åker till stranden i morgon bitti.", "Vad heter din syster?")


@pytest.fixture(scope="module")
def model() -> Identifier:
    return Identifier(Language())


def stub(score: float, label: str = "__label__en") -> Identifier:
    return Identifier(Language(), lambda text, k: [(score, label)])


# --- case 21


@pytest.mark.parametrize(
    "separator", ["\n", "\r\n", "\r", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\t", "\0", "\n\n "]
)
def test_line_separators_do_not_matter(model: Identifier, separator: str) -> None:
    label, score = model.identify(" ".join(ENGLISH))
    other, other_score = model.identify(separator.join(ENGLISH))
    assert (label, other) == ("en", "en")
    assert score == pytest.approx(other_score, abs=1e-6)


# --- case 23


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "12345",
        "12345 " * 99,
        "😀🎉" * 40,
        "https://example.org/a/long/path/of/many/words",
        "OK",
        "\u200b" * 50,
        "internationa",
        "info@example.org www.example.org example.org/some/page",
        "\ud800" * 30,
        "a" * (FLOOR_LETTERS - 1),
    ],
)
def test_texts_with_few_letters_have_no_language(model: Identifier, text: str) -> None:
    assert model.identify(text) == ("und", None)


def test_capitals_do_not_change_the_label(model: Identifier) -> None:
    sentences = [*ENGLISH, *(s for group in OTHERS.values() for s in group)]
    assert len(sentences) == 30
    right = [lang for lang, group in {"en": ENGLISH, **OTHERS}.items() for _ in group]
    labels = [[model.identify(v)[0] for v in (s.lower(), s.title(), s.upper())] for s in sentences]
    assert sum(len(set(found)) == 1 for found in labels) >= 28
    assert sum(found == [lang] * 3 for found, lang in zip(labels, right, strict=True)) >= 28


@given(st.text(max_size=60))
def test_any_text_gives_a_label_and_a_score_in_range(text: str) -> None:
    label, score = Identifier(Language()).identify(text)
    assert (score is None) == (label == "und")
    assert score is None or 0 <= score <= 1


# --- case 25


@pytest.mark.parametrize(
    ("given_score", "kept"), [(1.00001, 1.0), (1.0, 1.0), (-1e-9, 0.0), (0.5, 0.5), (math.inf, 1.0)]
)
def test_scores_are_clamped(given_score: float, kept: float) -> None:
    assert stub(given_score).identify(" ".join(ENGLISH)) == ("en", kept)


def test_a_score_that_is_no_number_is_an_error_of_the_stage() -> None:
    with pytest.raises(Rejected) as rejected:
        stub(math.nan).identify(" ".join(ENGLISH))
    assert (rejected.value.stage, rejected.value.reason) == ("language", "error")


# --- case 26


def mixed(foreign: str, share: float, total: int = 2000, alternating: bool = False) -> str:
    """`share` of the characters English, the rest `foreign`, in two blocks or in short runs."""
    english, other = (" ".join(ENGLISH) + " ") * 40, foreign * 40
    if not alternating:
        return english[: int(total * share)] + other[: int(total * (1 - share))]
    step = 120
    runs = range(total // step)
    a, b = int(step * share), step - int(step * share)
    return " ".join(english[i * a : (i + 1) * a] + " " + other[i * b : (i + 1) * b] for i in runs)


@pytest.mark.parametrize("alternating", [False, True])
@pytest.mark.parametrize("share", [0.4, 0.5, 0.6])
@pytest.mark.parametrize("foreign", [JAPANESE, HINDI])
def test_mixed_pages_score_below_the_keep_threshold(
    model: Identifier, foreign: str, share: float, alternating: bool
) -> None:
    _, score = model.identify(mixed(foreign, share, alternating=alternating))
    assert score is not None
    assert score <= 0.65


@pytest.mark.parametrize("foreign", [JAPANESE, HINDI])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.19, 0.81, 0.9, 0.98])
def test_no_confidence_in_a_language_of_few_characters(model: Identifier, foreign: str, share: float) -> None:
    label, score = model.identify(mixed(foreign, share))
    own = share if label == "en" else 1 - share
    assert score is not None
    assert own >= 0.2 or score <= 0.9


def test_scandinavian_lines_and_code_with_polish_comments_are_not_confident(model: Identifier) -> None:
    lines = [line for group in zip(DANISH, NORWEGIAN, SWEDISH, strict=True) for line in group]
    code = [f"    for item{i} in range(size{i}): values[item{i}] += self.total + {i} * len(keys)" for i in range(60)]
    comments = [f"# {OTHERS['pl'][i // 6 % 4]}\n" if i % 6 == 0 else "" for i in range(60)]
    commented = [comment + line for comment, line in zip(comments, code, strict=True)]
    for text in ("\n".join(lines * 4), "\n".join(commented)):
        _, score = model.identify(text)
        assert score is not None
        assert score <= 0.65


def test_script_share() -> None:
    assert script_share("abc", "en") == 1
    assert script_share("abcд", "en") == 0.75
    assert script_share("日本のabc", "ja") == 0.5
    assert script_share("123 !", "en") == 1


# --- case 27


@pytest.mark.parametrize(
    ("label", "normal"),
    [
        ("__label__en", "en"),
        ("__label__eng_Latn", "eng_Latn"),
        ("__label__zh-Hans", "zh-Hans"),
        ("__label__als", "als"),
        ("EN", "en"),
        ("ZH-Hans", "zh-Hans"),
    ],
)
def test_labels_are_normalised(label: str, normal: str) -> None:
    assert normal_label(label) == normal
    assert stub(0.9, label).identify(" ".join(ENGLISH))[0] == normal


def test_allowed_languages_must_be_possible() -> None:
    check_allowed(Language(allowed=("EN", "de", "und", "__label__fr")))
    for wrong, near in (("eng", "en"), ("english", None), ("xx", None)):
        with pytest.raises(UsageError, match=f"never returns '{wrong}'" + (f".*nearest: {near}" if near else "")):
            check_allowed(Language(allowed=(wrong,)))


def test_a_model_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "text.ftz").write_text("no model")
    for path in (str(tmp_path / "none.ftz"), "builtin:lid.218.ftz", str(tmp_path / "text.ftz")):
        with pytest.raises(UsageError) as error:
            load_model(path)
        assert "language.model" in str(error.value)
        assert "\n" not in str(error.value)


def test_long_texts_are_cheap(model: Identifier) -> None:
    begin = time.process_time()
    label, _ = model.identify((" ".join(OTHERS["de"]) + " ") * 40_000)
    assert label == "de"
    assert time.process_time() - begin < 10
