"""Bytes to text: BOM, then HTTP, then meta, then detection, each only as far as the bytes agree.

Valid UTF-8 with characters beyond ASCII is UTF-8, whatever a header says, and so is UTF-8 with few stray bytes. A
declared legacy encoding stands unless the text it gives is odd (letters run into symbols, case flips inside words,
control characters) and another reading is clearly less so. A page that stays odd in every reading is `undecodable`.

The rule for characters no text has: NUL, other controls save tab, newline, form feed and return, U+FFFE and U+FFFF are
removed; lone surrogates become U+FFFD.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

import numpy as np
from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

from pipeline.compiled import njit
from pipeline.errors import Rejected

Source = Literal["bom", "http", "record", "meta", "detected", "default"]

_BOMS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
#: The Python codec that does what the WHATWG standard says of a name; both sides normalised.
_CODECS = {
    "euc-kr": "cp949", "cp949": "cp949", "shift-jis": "cp932", "cp932": "cp932", "gbk": "gb18030", "gb2312": "gb18030",
    "big5": "big5hkscs", "big5hkscs": "big5hkscs", "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254",
    "iso8859-11": "cp874", "tis-620": "cp874", "x-mac-cyrillic": "mac-cyrillic", "utf-16": "utf-16-le",
}  # fmt: skip
_ESCAPES = (
    (b"\x1b$B", "iso2022_jp_ext"), (b"\x1b$@", "iso2022_jp_ext"), (b"\x1b(J", "iso2022_jp_ext"),
    (b"\x1b$)C", "iso2022_kr"),
)  # fmt: skip
_EAST_ASIAN = frozenset({"gb18030", "big5hkscs", "euc_jp", "cp932", "cp949"})
#: What Python calls a text encoding and no page is in: escapes would be undone, `utf-7` hides markup.
_NO_CHARSETS = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "utf-7"})
_META_WINDOW = 64 * 1024
_CHARSET_VALUE = re.compile(rb"""charset\s*=\s*["']?\s*([\w.:+-]{2,40})""")
_XML_ENCODING = re.compile(rb"""<\?xml[^>]{0,100}?encoding\s*=\s*["']([\w.:+-]{2,40})["']""")
_HTTP_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([^\s"';,]{2,40})""", re.IGNORECASE)
_BEYOND_ASCII = re.compile(rb"[\x80-\xff][^<>]*")
_BEFORE = bytes(b for b in range(0x20, 0x7F) if b not in b"<=>")  # what may stand in a line of text before a first one
_REMOVED = re.compile("[\x00-\x08\x0b\x0e-\x1f\ufffe\uffff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_SAMPLE = 16 * 1024
_ODD_CHARS = 4000
#: A reading with a larger share of odd places among the characters beyond ASCII, and with this many, is not believed.
_BELIEVABLE = 0.12
_ENOUGH = 5


@dataclass(frozen=True, slots=True)
class Decoded:
    text: str
    charset: str  #: the codec used, in lower case with hyphens
    source: Source


def to_text(body: bytes | memoryview, label: str | None = None, label_source: Source = "http") -> Decoded:
    """The text of `body`; `label` is the charset that HTTP declares. Raises Rejected(decode, undecodable)."""
    head = bytes(body[:4])
    for mark, codec in _BOMS:
        if head.startswith(mark):
            text = str(memoryview(body)[len(mark) :], codec, "replace")
            _refuse_garbage(text, codec)
            return Decoded(clean(text), _shown(codec), "bom")
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError:
        joined = _surrogates_joined(body)
        if joined is None:
            return _legacy(body, label, label_source)
        text = joined
    return _valid_utf8(body, text, label, label_source)


def clean(text: str) -> str:
    """`text` after the rule for characters no text has. Any string may come in; what leaves encodes as UTF-8."""
    if _SURROGATES.search(text):
        text = _SURROGATES.sub("\ufffd", text)
    return _REMOVED.sub("", text) if _REMOVED.search(text) else text


def declared_in_content_type(content_type: str | None) -> str | None:
    """The charset parameter of a Content-Type value."""
    match = _HTTP_CHARSET.search(content_type) if content_type else None
    return match[1] if match else None


def declared_in_markup(body: bytes | memoryview) -> str | None:
    """The charset of the first `<meta>`, else of the XML declaration, within 64 KiB: style sheets may come first."""
    head = bytes(body[:_META_WINDOW]).lower()
    at = head.find(b"charset")
    while at >= 0:
        opening = head.rfind(b"<", max(0, at - 400), at)
        if opening >= 0 and head.startswith(b"<meta", opening) and head.find(b">", opening, at) < 0:
            match = _CHARSET_VALUE.match(head, at)
            if match:
                return match[1].decode("ascii")
        at = head.find(b"charset", at + 7)
    match = _XML_ENCODING.search(head[:200])
    return match[1].decode("ascii") if match else None


def codec_of(label: str | None) -> str | None:
    """The Python codec for a charset label, by the WHATWG names; None for what is no charset."""
    if not label:
        return None
    name = label.strip().strip("\"'").lower()
    name = map_encoding_to_html5(name, fallback_utf8=False) or name
    return _python_codec(name)


def _python_codec(name: str) -> str | None:
    try:
        known = codecs.lookup(name).name
    except (LookupError, ValueError):
        known = name
    known = _CODECS.get(known.replace("_", "-"), known)
    try:
        info = codecs.lookup(known)
    except (LookupError, ValueError):
        return None
    return known if info._is_text_encoding and info.name not in _NO_CHARSETS else None


def _shown(codec: str) -> str:
    return {"cp949": "euc-kr", "cp932": "shift_jis", "big5hkscs": "big5", "euc_jp": "euc-jp",
            "iso2022_jp_ext": "iso-2022-jp", "iso2022_kr": "iso-2022-kr"}.get(codec) or re.sub(
        r"^cp(?=12|874)", "windows-", codec.replace("_", "-").replace("iso8859", "iso-8859"))  # fmt: skip


def _valid_utf8(body: bytes | memoryview, text: str, label: str | None, label_source: Source) -> Decoded:
    values = np.frombuffer(body, np.uint8)
    ascii_only = text.isascii()
    if ascii_only:
        codec, source = _declared_7bit(body)
        if codec:
            return Decoded(clean(str(body, codec, "replace")), _shown(codec), source)
        wide = _utf16_without_bom(values)
        if wide:
            return Decoded(clean(str(body, wide, "replace")), wide, "detected")
    if _holds_controls(values) or (not ascii_only and ("\ufffe" in text or "\uffff" in text)):
        _refuse_binary(values)
        text = clean(text)
    declared = codec_of(label)
    meta = None if declared == "utf-8" else codec_of(declared_in_markup(body))
    for codec, source in ((declared, label_source), (meta, "meta")):
        if codec == "utf-8":
            return Decoded(text, "utf-8", source)
        if codec is None or codec.startswith(("utf", "iso2022", "hz")):
            continue
        if ascii_only:
            return Decoded(text, _shown(codec), source)
        if codec in _EAST_ASIAN and _few_pairs(values):
            try:
                return Decoded(clean(str(body, codec)), _shown(codec), source)
            except UnicodeDecodeError:
                continue
    return Decoded(text, "utf-8", "detected")


def _declared_7bit(body: bytes | memoryview) -> tuple[str | None, Source]:
    """Encodings that write other scripts in ASCII bytes, known by their escapes."""
    whole = bytes(body)
    if b"\x1b" in whole:
        for escape, codec in _ESCAPES:
            if escape in whole:
                return codec, "detected"
    if b"~{" in whole and (declared_in_markup(whole) or "").startswith("hz"):
        return "hz", "meta"
    return None, "detected"


def _few_pairs(values: np.ndarray) -> bool:
    """Whether all that is not ASCII is a handful of two-byte sequences, which an East Asian encoding may give too."""
    high = int(np.count_nonzero(values >= 0x80))
    return high <= 16 and not bool((values >= 0xE0).any())


def _surrogates_joined(body: bytes | memoryview) -> str | None:
    """UTF-8 in which some writer encoded the halves of a pair each for itself (CESU-8); halves alone are U+FFFD."""
    try:
        halves = str(body, "utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _holds_controls(values: np.ndarray) -> bool:
    return _count_controls(values) > 0


def _beyond_ascii(body: bytes) -> bytes:
    """Stretches of text with bytes beyond ASCII, each with up to 40 bytes before: what tells encodings apart."""
    found: list[bytes] = []
    size = end = 0
    for match in _BEYOND_ASCII.finditer(body):
        before = body[max(end, match.start() - 40) : match.start()]
        found.append(before[len(before.rstrip(_BEFORE)) :] + match[0])
        end, size = match.end(), size + len(found[-1]) + 1
        if size > _SAMPLE:
            break
    return b"\n".join(found)[:_SAMPLE]


@njit
def _count_controls(values: np.ndarray) -> int:
    """Bytes that are controls no text has; one pass, which the compiler makes SIMD."""
    count = 0
    for value in values:
        count += (value < 9) | (value == 11) | ((value >= 14) & (value < 32))
    return count


def _refuse_binary(values: np.ndarray) -> None:
    controls = _count_controls(values)
    if controls > max(16, len(values) // 50):
        raise Rejected("decode", "undecodable", "control characters throughout: this is no text")


def _utf16_without_bom(values: np.ndarray) -> str | None:
    """Text in a Latin script as UTF-16 has a zero in nearly every second byte."""
    head = values[: min(4096, len(values) // 2 * 2)]
    if len(head) < 8:
        return None
    even = float(np.count_nonzero(head[0::2] == 0)) * 2 / len(head)
    odd = float(np.count_nonzero(head[1::2] == 0)) * 2 / len(head)
    if odd > 0.4 and even < 0.1:
        return "utf-16-le"
    return "utf-16-be" if even > 0.4 and odd < 0.1 else None


def _legacy(body: bytes | memoryview, label: str | None, label_source: Source) -> Decoded:
    values = np.frombuffer(body, np.uint8)
    declared = codec_of(label)
    meta = codec_of(declared_in_markup(body))
    wide = _utf16_without_bom(values)
    if wide is None and declared and declared.startswith("utf-16"):
        wide = declared
    if wide:
        text = str(body, wide, "replace")
        if text.count("\ufffd") <= len(text) // 100 and "<" in text[:65536]:
            return Decoded(clean(text), wide, label_source if declared == wide else "detected")
    _refuse_binary(values)
    sample = _beyond_ascii(bytes(body))
    bad, good = _utf8_counts(sample)
    if (good >= 3 and bad * 4 <= good) or (bad <= 1 and good and "utf-8" in (declared, meta)):
        source: Source = label_source if declared == "utf-8" else "meta" if meta == "utf-8" else "detected"
        return Decoded(clean(str(body, "utf-8", "replace")), "utf-8", source)
    candidates: list[tuple[str, Source]] = []
    detected = _python_codec(detect_encoding(sample, html5_compatible=False) or "")
    if meta and meta == detected != declared:
        candidates.append((meta, "meta"))
    candidates += [(declared, label_source)] if declared else []
    candidates += [(meta, "meta")] if meta else []
    candidates += [(detected, "detected")] if detected else []
    candidates.append(("cp1252", "default"))
    candidates = [(c, s) for c, s in candidates if not c.startswith(("utf", "iso2022", "hz"))]
    scored = [(oddness(_read(sample, codec)[:_ODD_CHARS]), codec, source) for codec, source in candidates]
    least = min(score for score, _, _ in scored)
    score, codec, source = next(entry for entry in scored if entry[0] <= least + 0.03)
    if score > _BELIEVABLE and score * sum(c > "\x7f" for c in _read(sample, codec)[:_ODD_CHARS]) >= _ENOUGH:
        raise Rejected("decode", "undecodable", f"no reading makes sense; the best is {_shown(codec)}")
    return Decoded(clean(_read(body, codec)), _shown(codec), source)


def _utf8_counts(sample: bytes) -> tuple[int, int]:
    """(stray, sound) sequences beyond ASCII when `sample` is read as UTF-8."""
    text = sample.decode("utf-8", "replace").removesuffix("\ufffd")  # the sample may end inside a character
    bad = len(re.findall("\ufffd+", text)) - sample.count(b"\xef\xbf\xbd")
    return max(bad, 0), sum(1 for c in text if c > "\x7f") - text.count("\ufffd")


def _read(body: bytes | memoryview, codec: str) -> str:
    return str(body, codec, "replace" if codec in _EAST_ASIAN else "gristmill-c1")


def _c1(error: UnicodeError) -> tuple[str, int]:
    """Bytes that a single-byte table leaves out: C1 controls where they are such, as the WHATWG tables have it."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    part = error.object[error.start : error.end]
    return "".join(chr(b) if 0x80 <= b < 0xA0 else "\ufffd" for b in part), error.end


codecs.register_error("gristmill-c1", _c1)


def oddness(text: str) -> float:
    """Share of the characters beyond ASCII that stand where no script puts them: the mark of a wrong reading."""
    total = odd = upper = lower = 0
    before = " "
    for i, char in enumerate(text):
        if char > "\x7f" or before > "\x7f":
            if char > "\x7f":
                total += 1
            category = unicodedata.category(char)
            if char == "\ufffd":
                odd += 3
            elif (
                (char > "\x7f" and category in ("Cc", "Cn", "Co", "Cs"))
                or (char.isupper() and before.islower())
                or _mixed(before, char)
            ):
                odd += 1
            elif char > "\x7f" and category[0] in "SPN" and before.isalpha() and char not in "’·‐‑–—…、。・ー":
                after = text[i + 1 : i + 2]
                odd += (after.isalpha() and not _han(before)) or category in ("So", "Sk", "Sm")
            elif _han(char) and "a" <= before <= "z" and "a" <= text[i + 1 : i + 2] <= "z":
                odd += 1
            if category == "Lu":
                upper += 1
            elif category == "Ll":
                lower += 1
        before = char
    if total == 0:
        return 0.0
    if upper > 20 and upper > 2 * lower:  # KOI8-R read as windows-1251 and the reverse: all is in capitals
        odd += upper // 4
    half_width = sum(1 for c in text if "\uff61" <= c <= "\uff9f")
    if half_width * 3 > total:
        odd += half_width
    return min(1.0, odd / total)


def _script(char: str) -> int:
    """1 Latin, 2 Greek, 3 Cyrillic, 4 Hebrew, 5 Arabic, 0 all else."""
    code = ord(char)
    if not char.isalpha() or code in (0xAA, 0xB5, 0xBA):
        return 0
    if code < 0x250 or 0x1E00 <= code < 0x1F00:
        return 1
    for number, first, last in ((2, 0x370, 0x3FF), (3, 0x400, 0x52F), (4, 0x590, 0x5FF), (5, 0x600, 0x6FF)):
        if first <= code <= last:
            return number
    return 0


def _mixed(before: str, char: str) -> bool:
    a, b = _script(before), _script(char)
    return a != 0 and b != 0 and a != b


def _han(char: str) -> bool:
    return "\u3040" <= char <= "\u9fff" or "\uac00" <= char <= "\ud7af"


def _refuse_garbage(text: str, codec: str) -> None:
    if text.count("\ufffd") > max(4, len(text) // 10):
        raise Rejected("decode", "undecodable", f"the byte order mark says {codec}, the bytes do not")
