"""Text equals its source wherever a declaration or the bytes settle it; nothing comes out as mojibake."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pipeline.crawl.charset import clean, codec_of, declared_in_markup, to_text
from pipeline.errors import Rejected

GERMAN = "Über die Höhe der Gebühren für größere Häuser müssen die Bürger ständig ausführlich aufgeklärt werden. "
RUSSIAN = "Сегодня в городе открылась новая библиотека, где можно читать книги и слушать лекции. "
CHINESE = "今天我们在北京举行会议，讨论了城市规划和环境保护的问题，大家都发表了意见。"
CHINESE_T = "今天我們在臺北舉行會議，討論了城市規劃和環境保護的問題，大家都發表了意見。"
JAPANESE = "今日は東京で会議が行われ、都市計画と環境保護について話し合いました。とても良い一日でした。"

#: (text, codec of Python, label on the page)
SAMPLES = [
    (GERMAN, "latin-1", "ISO-8859-1"),
    (GERMAN + "„Preis“ 5 € – ", "cp1252", "windows-1252"),
    (RUSSIAN, "cp1251", "windows-1251"),
    (RUSSIAN, "koi8-r", "KOI8-R"),
    (CHINESE, "gbk", "gb2312"),
    (CHINESE_T, "big5", "Big5"),
    (JAPANESE, "cp932", "Shift_JIS"),
    (JAPANESE, "euc-jp", "x-euc-jp"),
]
IDS = [label for _, _, label in SAMPLES]
STYLE = "<style>" + "p.item > a:hover { color: #123456; margin: 0 auto }\n" * 600 + "</style>"


def html(text: str, meta: str | None, head: str = "") -> str:
    declaration = f'<meta http-equiv="Content-Type" content="text/html; charset={meta}">' if meta else ""
    return f"<html><head>{head}{declaration}</head><body><p>{text * 3}</p></body></html>"


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
@pytest.mark.parametrize("head", ["", STYLE], ids=["short", "30 kB of CSS first"])
@pytest.mark.parametrize(
    ("http", "meta", "source"),
    [("own", None, "http"), (None, "own", "meta"), ("own", "own", "http"), ("utf-8", "own", "meta"),
     ("own", "utf-8", "http"), (None, None, "detected")],
)  # fmt: skip
def test_legacy_pages(
    sample: tuple[str, str, str], head: str, http: str | None, meta: str | None, source: str
) -> None:  # case 17
    text, codec, label = sample
    page = html(text, label if meta == "own" else meta, head)
    got = to_text(page.encode(codec), label if http == "own" else http)
    assert got.text == page
    assert got.source == source or (source == "detected" and got.source == "default")


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
@pytest.mark.parametrize("wrong", ["ISO-8859-1", "windows-1251", "KOI8-R", "gb2312", "Shift_JIS", "utf-8"])
def test_disagreeing_declarations_are_settled_by_the_bytes(sample: tuple[str, str, str], wrong: str) -> None:
    text, codec, label = sample
    for http, meta in ((wrong, label), (label, wrong)):
        page = html(text, meta)
        assert to_text(page.encode(codec), http).text == page, (http, meta)


@pytest.mark.parametrize("text", [GERMAN, RUSSIAN, CHINESE, CHINESE_T, JAPANESE])
@pytest.mark.parametrize("wrong", ["ISO-8859-1", "windows-1251", "gb2312", "Shift_JIS", "nonsense", "utf-16"])
def test_utf8_under_a_wrong_label_is_utf8(text: str, wrong: str) -> None:
    for http, meta in ((wrong, None), (None, wrong), (wrong, wrong)):
        page = html(text, meta)
        got = to_text(page.encode(), http)
        assert (got.text, got.charset, got.source) == (page, "utf-8", "detected")


@pytest.mark.parametrize("text", [GERMAN, RUSSIAN, CHINESE, JAPANESE])
@pytest.mark.parametrize("label", ["utf-8", None, "iso-8859-1"])
@pytest.mark.parametrize("stray", [b"\xff", b"\xe4", b"\x80"])
def test_one_stray_byte_costs_one_character(text: str, label: str | None, stray: bytes) -> None:
    page = html(text * 40, None)
    body = page.encode()
    middle = body.index(b"<p>") + 3
    got = to_text(body[:middle] + stray + body[middle:], label)
    assert got.text == page.replace("<p>", "<p>\ufffd", 1)
    assert got.charset == "utf-8"


@pytest.mark.parametrize(
    ("codec", "mark"),
    [
        ("utf-8", b"\xef\xbb\xbf"),
        ("utf-16-le", b"\xff\xfe"),
        ("utf-16-be", b"\xfe\xff"),
        ("utf-32-le", b"\xff\xfe\0\0"),
    ],
)
def test_a_byte_order_mark_comes_first(codec: str, mark: bytes) -> None:
    page = html(RUSSIAN + CHINESE, "windows-1252")
    got = to_text(mark + page.encode(codec), "iso-8859-1")
    assert (got.text, got.charset, got.source) == (page, codec, "bom")


def test_utf16_without_a_mark() -> None:
    page = html("Plain English words, nothing else. ", None)
    for codec in ("utf-16-le", "utf-16-be"):
        assert to_text(page.encode(codec)).text == page
    page = html(CHINESE, None)
    assert to_text(page.encode("utf-16-be"), "utf-16be").text == page


def test_iso_2022_jp() -> None:
    page = html(JAPANESE, "iso-2022-jp")
    got = to_text(page.encode("iso2022_jp"))
    assert (got.text, got.charset) == (page, "iso-2022-jp")


@pytest.mark.parametrize("label", [None, "utf-8", "windows-1251", "gb2312"])
def test_bytes_without_sense_are_undecodable(label: str | None) -> None:
    noise = b"<html><body><p>" + bytes(b | 0x80 for b in os.urandom(4000)) + b"</p></body></html>"
    mixed = html(RUSSIAN, None).encode() + html(RUSSIAN, None).encode("cp1251") + html(RUSSIAN, None).encode("koi8-r")
    for body in (noise, mixed):
        with pytest.raises(Rejected) as caught:
            to_text(body, label)
        assert (caught.value.stage, caught.value.reason) == ("decode", "undecodable")
    with pytest.raises(Rejected):
        to_text(os.urandom(4000).replace(b"\xff", b"a") + b"<p>", label)


def test_characters_that_no_text_has() -> None:  # cases 11 and 45
    page = "<p>be\x00fore\x0b \x1f\ufffe\uffffafter\t\n\r</p>Ü"
    assert to_text(page.encode()).text == "<p>before after\t\n\r</p>Ü"
    assert to_text(page.encode("utf-16")).text == "<p>before after\t\n\r</p>Ü"
    assert to_text(b"\x00<p>one\x00two</p>").text == "<p>onetwo</p>"
    assert to_text("<p>Grö\x00ße ändern, größer</p>".encode("latin-1"), "latin-1").text == "<p>Größe ändern, größer</p>"
    for pair in ("\ud800", "\udfff", "\udfff\ud800"):
        for text in (pair + "ab", "a" + pair + "b", "ab" + pair):
            assert clean(text) == text.replace("\ud800", "\ufffd").replace("\udfff", "\ufffd")
            clean(text).encode()
    lone = to_text(b"<p>\xed\xa0\x80 R\xc3\xa4ume \xc3\xbcber \xc3\x96l und mehr \xc3\xa4</p>" * 6, "utf-8")
    assert "Räume über Öl" in lone.text
    lone.text.encode()
    halves = b"<p>" + b"plain words " * 90 + b"\xed\xa0\xbd\xed\xb8\x80 and \xed\xa0\xbd, \xed\xb8\x80</p>"
    for label in (None, "utf-8", "windows-1252"):
        joined = to_text(halves, label)
        assert joined.charset == "utf-8"
        assert joined.text.endswith("words \U0001f600 and \ufffd, \ufffd</p>"), label


def test_labels() -> None:
    assert codec_of("latin1") == codec_of("ISO_8859-1") == codec_of("ascii") == "cp1252"
    assert codec_of("x-sjis") == codec_of("windows-31j") == "cp932"
    assert codec_of(" GB2312 ") == codec_of("chinese") == "gb18030"
    assert codec_of("ks_c_5601-1987") == "cp949"
    assert codec_of("utf8") == "utf-8"
    assert codec_of("x-nonsense") is None
    assert codec_of("zip") is None
    for no_charset in ("unicode_escape", "raw-unicode-escape", "utf-7", "idna", "punycode"):
        assert codec_of(no_charset) is None
    assert declared_in_markup(b"<META NAME=x><meta content=\"text/html; charset = 'Big5' \"/>") == "big5"
    assert declared_in_markup(b'<script charset="x">var charset="y"</script><meta charset=utf-8>') == "utf-8"
    assert declared_in_markup(b'<?xml version="1.0" encoding="windows-1251"?>') == "windows-1251"


def test_labelled_real_pages(shared_data: Path) -> None:
    """Pages in 30 legacy encodings, without their declarations: the share that detection alone reads right."""
    codecs = {"gb2312": "gb18030", "shift_jis": "cp932", "euc-kr": "cp949", "tis-620": "cp874", "iso-8859-1": "cp1252"}
    right = total = 0
    for folder in sorted((shared_data / "lid" / "chardet").iterdir()):
        label = re.sub(r"-(hungarian|bulgarian|russian|arabic|greek|turkish|hebrew)$", "", folder.name).lower()
        if label.startswith(("utf", "ascii", "iso-2022", "ibm", "mac")):
            continue
        for path in folder.iterdir():
            body = re.sub(rb"(?i)(encoding|charset)=", b"x=", path.read_bytes())
            want = body.decode(codecs.get(label, label), "replace")
            total += 1
            try:
                right += _letters(to_text(body).text) == _letters(want)
            except Rejected:
                continue
    assert total > 100
    assert right / total > 0.98


def _letters(text: str) -> str:
    return "".join(c for c in text if c.isalpha())
