"""E-mail addresses and public IP addresses out of a text, as a function of that text alone, in linear time.

The grammar of e-mail addresses and the choice of IP addresses (valid and globally reachable; private, reserved and
loopback ones stay) are datatrove's (`formatters/pii.py`). Departures:

- one fixed replacement per kind; the reference cycles through several by a counter of its process, so its output
  depends on what that process saw before;
- each run of address characters is looked at once; the reference's pattern is quadratic in a run without `@`;
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

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.recipe import Pii

EMAIL = "email@example.com"
IPV4 = "192.0.2.1"
IPV6 = "2001:db8::1"

_LOCAL = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~."
# lookbehind and possessive repeats: a run of these characters is entered at its start only, and never given back
_EMAIL = re.compile(
    rf"(?<![{_LOCAL}-])(?P<local>[{_LOCAL}-]++)@"
    r"(?:(?P<domain>[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++)|(?P<literal>\[[0-9.]{7,15}\]))"
)
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_IPV6 = re.compile(r"[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{1,40}")
#: RE2: whether a text can hold anything to mask; false alarms are fine, misses are not.
_SUSPECT_EMAIL = r"@(?:[A-Za-z0-9-]+\.[A-Za-z0-9]|\[)"
_SUSPECT_IP = r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]"


def mask(text: str, settings: Pii) -> str:
    """`text` with its e-mail addresses and public IP addresses replaced, as the recipe asks."""
    if settings.emails and "@" in text:
        text = _EMAIL.sub(_mask_email, text)
    if settings.ips:
        text = _IPV4.sub(_mask_ipv4, text)
        if ":" in text:
            text = _IPV6.sub(_mask_ipv6, text)
    return text


def mask_column(texts: pa.Array, settings: Pii) -> tuple[pa.Array, list[int]]:
    """(the texts masked, which of them changed). Only suspects are turned into Python strings."""
    suspect = "|".join([_SUSPECT_EMAIL] * settings.emails + [_SUSPECT_IP] * settings.ips)
    if not suspect:
        return texts, []
    changed, masked = [], []
    suspects = pc.fill_null(pc.match_substring_regex(texts, suspect), False)
    for index in pc.indices_nonzero(suspects).to_pylist():
        before = texts[index].as_py()
        after = mask(before, settings)
        if after != before:
            changed.append(index)
            masked.append(after)
    if not changed:
        return texts, []
    where = [False] * len(texts)
    for index in changed:
        where[index] = True
    return pc.replace_with_mask(texts, pa.array(where), pa.array(masked, texts.type)), changed


def _mask_email(match: re.Match[str]) -> str:
    # the address may be a part of the matched run: `..a@b.c-` is a@b.c with something around it
    local, domain = match["local"], match["domain"]
    start = _local_start(local)
    if start is None:
        return match[0]
    if domain is None:
        try:
            ipaddress.IPv4Address(match["literal"][1:-1])
        except ValueError:
            return match[0]
        return local[:start] + EMAIL
    end = _domain_end(domain)
    return match[0] if end is None else local[:start] + EMAIL + domain[end:]


def _local_start(local: str) -> int | None:
    """Where the local part begins: after the last empty atom (`..`), at the first letter, digit or underscore."""
    if local.endswith("."):
        return None
    begin = local.rfind("..")
    for index in range(begin + 2 if begin >= 0 else 0, len(local)):
        if local[index].isalnum() or local[index] == "_":
            return index
    return None


def _domain_end(domain: str) -> int | None:
    """Where the domain ends: two labels or more, none of which begins or ends with a hyphen."""
    end = labels = 0
    for label in domain.split("."):
        valid = _LABEL.match(label)
        if valid is None:
            break
        labels += 1
        end += valid.end() + (labels > 1)
        if valid.end() < len(label):
            break
    return end if labels > 1 else None


def _mask_ipv4(match: re.Match[str]) -> str:
    text, start, end = match.string, match.start(), match.end()
    if _in_word(text, start - 1) or _in_word(text, end):
        return match[0]
    if text[start - 1 : start] == "." and text[start - 2 : start - 1].isdecimal():
        return match[0]
    if text[end : end + 1] == "." and text[end + 1 : end + 2].isdecimal():
        return match[0]
    try:
        public = ipaddress.IPv4Address(match[0]).is_global
    except ValueError:
        return match[0]
    return IPV4 if public else match[0]


def _mask_ipv6(match: re.Match[str]) -> str:
    text, start, end = match.string, match.start(), match.end()
    if _in_word(text, start - 1) or text[start - 1 : start] in (":", ".") or _in_word(text, end):
        return match[0]
    if text[end : end + 1] == "." and text[end + 1 : end + 2].isdecimal():  # its last part is written as IPv4
        return match[0]
    run = match[0]
    tail = ":" if run.endswith(":") and not run.endswith("::") else ""  # a sentence's colon
    try:
        public = ipaddress.IPv6Address(run.removesuffix(tail)).is_global
    except ValueError:
        return run
    return IPV6 + tail if public else run


def _in_word(text: str, index: int) -> bool:
    """Whether the character there is an ASCII letter, digit or underscore."""
    if not 0 <= index < len(text):
        return False
    char = text[index]
    return char.isascii() and (char.isalnum() or char == "_")
