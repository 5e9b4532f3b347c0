"""E-mail addresses and public IP addresses out of a text, as a function of that text alone, in linear time.

The grammar of e-mail addresses and the choice of IP addresses (valid and globally reachable; private, reserved and
loopback ones stay) are datatrove's (`formatters/pii.py`). Departures:

- one fixed replacement per kind; the reference cycles through several by a counter of its process, so its output
  depends on what that process saw before;
- a character is looked at a few times at most; the reference's pattern is quadratic in a run without `@`;
- an address glued to a letter of another script (`请联系a@b.com`, `地址8.8.8.8`) is masked; the reference needs a word
  boundary before an e-mail address;
- an IPv4 address must not be part of a longer dotted number, an identifier or a version with a letter (`1.2.3.4.5`,
  `v1.2.3.4`, `x1.2.3.4`); a bare `1.2.3.4` may be an address and is masked, as there;
- public IPv6 addresses (of 2000::/3, where all of them are) are masked too.

Masking twice changes nothing: the replacements are addresses reserved for documentation.
"""

from __future__ import annotations

import ipaddress
import re
import string
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.recipe import Pii

EMAIL = "email@example.com"
IPV4 = "192.0.2.1"
IPV6 = "2001:db8::1"

# All of it works on UTF-8 bytes: what matters is ASCII, and a long text need not be held as Python characters.
_LOCAL = frozenset((string.ascii_letters + string.digits + "!#$%&'*+/=?^_`{|}~.-").encode())
_WORD = frozenset((string.ascii_letters + string.digits + "_").encode())
_DIGITS = frozenset(string.digits.encode())
_DOT, _COLON = b".:"
# possessive: what was taken is never given back, so no text is read twice
_DOMAIN = re.compile(rb"(?P<name>[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++)|\[(?P<ip>[0-9.]{7,15})\]")
_LABEL = re.compile(rb"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
# what every address holds, from its first mark on: `re` looks for a literal first character fast
_IPV4_CORE = re.compile(rb"\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}")
_IPV6_CORE = re.compile(rb":[0-9A-Fa-f]{0,4}:")
_IPV6_START = re.compile(rb"[23][0-9A-Fa-f]{3}:")
_IPV6_RUN = re.compile(rb"[0-9A-Fa-f:]++")
#: RE2: whether a text can hold anything to mask; false alarms are fine, misses are not.
_SUSPECT_EMAIL = r"@(?:[A-Za-z0-9-]+\.[A-Za-z0-9]|\[)"
_SUSPECT_IP = r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]"

Spans = Iterator[tuple[int, int]]


def mask(text: str, settings: Pii) -> str:
    """`text` with its e-mail addresses and public IP addresses replaced, as the recipe asks."""
    return _mask(text.encode("utf-8", "surrogatepass"), settings).decode("utf-8", "surrogatepass")


def mask_column(texts: pa.Array, settings: Pii) -> tuple[pa.Array, list[int]]:
    """(the texts masked, which of them changed). Only suspects are looked at one by one."""
    suspect = "|".join([_SUSPECT_EMAIL] * settings.emails + [_SUSPECT_IP] * settings.ips)
    if not suspect:
        return texts, []
    suspects = pc.fill_null(pc.match_substring_regex(texts, suspect), False)
    changed: list[int] = []
    masked: list[bytes] = []
    for index in pc.indices_nonzero(suspects).to_pylist():
        before = texts[index].as_buffer().to_pybytes()
        after = _mask(before, settings)
        if after != before:
            changed.append(index)
            masked.append(after)
    if not changed:
        return texts, []
    where = [False] * len(texts)
    for index in changed:
        where[index] = True
    return pc.replace_with_mask(texts, pa.array(where), pa.array(masked, pa.binary()).cast(texts.type)), changed


def _mask(text: bytes, settings: Pii) -> bytes:
    if settings.emails:
        text = _replace(text, _emails(text), EMAIL)
    if settings.ips:
        text = _replace(text, _ipv4(text), IPV4)
        text = _replace(text, _ipv6(text), IPV6)
    return text


def _replace(text: bytes, spans: Spans, replacement: str) -> bytes:
    pieces: list[bytes] = []
    done = 0
    for start, end in spans:
        pieces += [text[done:start], replacement.encode()]
        done = end
    return b"".join([*pieces, text[done:]]) if pieces else text


def _emails(text: bytes) -> Spans:
    """[start, end) of each e-mail address. A byte is looked at twice at most: before an `@` and after one."""
    done, at = 0, text.find(b"@")
    while at >= 0:
        begin = at
        while begin > done and text[begin - 1] in _LOCAL:
            begin -= 1
        local = _local_start(text[begin:at])
        domain = _DOMAIN.match(text, at + 1)
        if local is not None and domain is not None:
            end = _domain_end(domain)
            if end is not None:
                done = at + 1 + end
                yield begin + local, done
        at = text.find(b"@", at + 1)


def _local_start(local: bytes) -> int | None:
    """Where the local part begins: after the last empty atom (`..`), at the first letter, digit or underscore."""
    if local.endswith(b"."):
        return None
    begin = local.rfind(b"..")
    for index in range(begin + 2 if begin >= 0 else 0, len(local)):
        if local[index] in _WORD:
            return index
    return None


def _domain_end(domain: re.Match[bytes]) -> int | None:
    """Length of the domain in the match: two labels or more, none of which begins or ends with a hyphen."""
    if domain["ip"] is not None:
        return None if _address(domain["ip"]) is None else len(domain[0])
    end = labels = 0
    for label in domain["name"].split(b"."):
        valid = _LABEL.match(label)
        if valid is None:
            break
        labels += 1
        end += valid.end() + (labels > 1)
        if valid.end() < len(label):
            break
    return end if labels > 1 else None


def _ipv4(text: bytes) -> Spans:
    core = _IPV4_CORE.search(text)
    while core is not None:
        dot, end = core.span()
        start = dot
        while start > 0 and dot - start < 3 and text[start - 1] in _DIGITS:
            start -= 1
        alone = _apart(text, start, end) and not _decimal(text, start - 1, -1) and not _decimal(text, end, 1)
        if start < dot and alone:
            address = _address(text[start:end])
            if address is not None and address.is_global:
                yield start, end
        core = _IPV4_CORE.search(text, end if start < dot else dot + 1)


def _ipv6(text: bytes) -> Spans:
    core = _IPV6_CORE.search(text)
    while core is not None:
        start = core.start() - 4
        found = _IPV6_START.match(text, start) if start >= 0 else None
        run = _IPV6_RUN.match(text, start if found else core.start())
        assert run is not None  # it begins with what was found
        end = run.end()
        if text[end - 1] == _COLON and text[end - 2] != _COLON:  # a sentence's colon
            end -= 1
        if found and _apart(text, start, end) and text[start - 1 : start] != b":" and not _decimal(text, end, 1):
            address = _address(text[start:end]) if end - start <= 39 else None
            if address is not None and address.is_global:
                yield start, end
        core = _IPV6_CORE.search(text, run.end())


def _address(text: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.decode("ascii"))
    except ValueError:
        return None


def _decimal(text: bytes, dot: int, step: int) -> bool:
    """Whether there is a dot and beyond it a digit: the number goes on."""
    return 0 < dot < len(text) - 1 and text[dot] == _DOT and text[dot + step] in _DIGITS


def _apart(text: bytes, start: int, end: int) -> bool:
    """Whether no ASCII letter, digit or underscore adjoins text[start:end]."""
    return not (start > 0 and text[start - 1] in _WORD) and not (end < len(text) and text[end] in _WORD)
