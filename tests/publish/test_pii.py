"""Masking: what is an address, what is not, and that it costs no more than reading the text."""

from __future__ import annotations

import ipaddress
import time

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.publish.pii import EMAIL, IPV4, IPV6, mask, mask_column
from pipeline.recipe import Pii

ALL = Pii()

GOLDEN = {
    # e-mail addresses
    "write to john.doe@mail.example.org.": f"write to {EMAIL}.",
    "john@x.com": EMAIL,
    "<john+tag@x.co.uk>, 'ann@y.de'": f"<{EMAIL}>, '{EMAIL}'",
    "mailto:a_b@x.com?subject=hi": f"mailto:{EMAIL}?subject=hi",
    "a@b.c@d.e": f"{EMAIL}@d.e",
    "请联系john@x.com吧": f"请联系{EMAIL}吧",
    "jöhn@x.com": f"jö{EMAIL}",
    "a..b@x.com": f"a..{EMAIL}",
    "...a@x.com": f"...{EMAIL}",
    "a@x.com-": f"{EMAIL}-",
    "a@x.com.-y": f"{EMAIL}.-y",
    "a@x-.com": "a@x-.com",
    "a@-x.com": "a@-x.com",
    "a.@x.com": "a.@x.com",
    "'@x.com": "'@x.com",
    "a@localhost": "a@localhost",
    "a @ x.com": "a @ x.com",
    "user@[8.8.8.8]": EMAIL,
    "user@[888.8.8.8]": "user@[888.8.8.8]",
    "follow @john on x.com": "follow @john on x.com",
    "john(at)x.com": "john(at)x.com",
    # public IPv4
    "ping 8.8.8.8 now": f"ping {IPV4} now",
    "8.8.8.8:53, 1.1.1.1/32.": f"{IPV4}:53, {IPV4}/32.",
    "地址8.8.8.8。": f"地址{IPV4}。",
    "http://8.8.4.4/x": f"http://{IPV4}/x",
    "10.0.0.1 127.0.0.1 192.168.1.1 169.254.1.1 0.0.0.0": "10.0.0.1 127.0.0.1 192.168.1.1 169.254.1.1 0.0.0.0",
    "256.1.1.1 8.8.8 1.2.3.4.5 1.2.3.4.": f"256.1.1.1 8.8.8 1.2.3.4.5 {IPV4}.",
    "v1.2.3.4 1.2.3.4rc1 x_8.8.8.8": "v1.2.3.4 1.2.3.4rc1 x_8.8.8.8",
    "here: ...8.8.8.8, .8.8.8.8.": f"here: ...{IPV4}, .{IPV4}.",
    "'@x.com@y.de": f"'@{EMAIL}",
    "version 1.2.3.4": f"version {IPV4}",
    "01.02.03.04": "01.02.03.04",
    "1234.5.6.7 5.6.7.1234": "1234.5.6.7 5.6.7.1234",
    "٨.٨.٨.٨": "٨.٨.٨.٨",
    # public IPv6
    "at 2001:4860:4860::8888: fast": f"at {IPV6}: fast",
    "[2606:4700:4700::1111]:443": f"[{IPV6}]:443",
    "2a00:1450:4001:0830:0000:0000:0000:200e": IPV6,
    "2001:db8::2 fe80::1 ::1 12:34:56 2024:01:02": "2001:db8::2 fe80::1 ::1 12:34:56 2024:01:02",
    "std::2001::x, 3a::Class": "std::2001::x, 3a::Class",
}


@pytest.mark.parametrize(("text", "expected"), GOLDEN.items())
def test_golden(text: str, expected: str) -> None:
    assert mask(text, ALL) == expected


@pytest.mark.parametrize(("text", "expected"), GOLDEN.items())
def test_masking_twice_changes_nothing(text: str, expected: str) -> None:
    assert mask(expected, ALL) == expected


def test_kinds_are_masked_as_the_recipe_asks() -> None:
    text = "a@b.com 8.8.8.8 2606:4700:4700::1111"
    assert mask(text, Pii(emails=True, ips=False)) == f"{EMAIL} 8.8.8.8 2606:4700:4700::1111"
    assert mask(text, Pii(emails=False, ips=True)) == f"a@b.com {IPV4} {IPV6}"
    assert mask(text, Pii(emails=False, ips=False)) == text


def test_a_column_is_masked_like_its_texts() -> None:
    texts = [*GOLDEN, "nothing here", ""]
    masked, changed = mask_column(pa.array(texts), ALL)
    assert masked.to_pylist() == [mask(text, ALL) for text in texts]
    assert changed == [i for i, text in enumerate(texts) if mask(text, ALL) != text]
    assert mask_column(pa.array(["plain"]), Pii(emails=False, ips=False)) == (pa.array(["plain"]), [])


BITS = (*"ab1258.:-_@[]/ é\n", "::", "8.8.8.8", "a@b.c", "2606:")
ALPHABET = st.lists(st.sampled_from(BITS), max_size=40).map("".join)


@settings(max_examples=400, deadline=None)
@given(st.lists(ALPHABET, max_size=4))
def test_columns_and_texts_agree(texts: list[str]) -> None:
    masked, _ = mask_column(pa.array(texts, pa.string()), ALL)
    assert masked.to_pylist() == [mask(text, ALL) for text in texts]


@settings(max_examples=200, deadline=None)
@given(st.ip_addresses(v=4))
def test_every_public_address_and_no_other(address: ipaddress.IPv4Address) -> None:
    expected = IPV4 if address.is_global else str(address)
    assert mask(f"({address})", ALL) == f"({expected})"


@settings(max_examples=200, deadline=None)
@given(st.ip_addresses(v=6, network="2000::/3"))
def test_every_public_address_of_version_6(address: ipaddress.IPv6Address) -> None:
    for form in (str(address), address.exploded, str(address).upper()):
        assert mask(f"<{form}>", ALL) == (f"<{IPV6}>" if address.is_global else f"<{form}>")


HOSTILE = [
    "a",
    "a.",
    ".",
    "a@",
    "@",
    "a@b.",
    "a@b-.",
    "-",
    "1",
    "1.",
    "1.1.1.",
    "8.8.8.8",
    "2001:",
    "2001::",
    ":",
    "%a",
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_time_is_linear(unit: str) -> None:
    """A million hostile characters take about as long as any other million: a quadratic scan takes minutes."""
    text = unit * (1_000_000 // len(unit))
    begun = time.process_time()
    mask(text, ALL)
    mask_column(pa.array([text]), ALL)
    assert time.process_time() - begun < 8
