"""The URL filter: whole addresses, substrings, hard words, counted soft words; case and www. do not matter."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.crawl.urls import blocked, builtin_lists, compile_rules, host_of
from pipeline.errors import UsageError
from pipeline.recipe import Url


@pytest.fixture
def lists(tmp_path: Path) -> Url:
    contents = {
        "domains": "bad.example\nwww.also-bad.example\nmixed.example/one/page\n",
        "strict": "two girls\nxx-x\n",
        "hard": "casino\n#poof\n",
        "soft": "adult\nsexy\n",
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    return Url(
        blocked_domains=(str(tmp_path / "domains"),),
        strict_words=(str(tmp_path / "strict"),),
        hard_words=(str(tmp_path / "hard"),),
        soft_words=(str(tmp_path / "soft"),),
    )


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://bad.example/x", "blocked_domain"),
        ("https://WWW.Bad.Example:8080", "blocked_domain"),
        ("http://also-bad.example/", "blocked_domain"),
        ("http://sub.bad.example/", None),
        ("http://notbad.example/", None),
        ("http://mixed.example/one/page/", "blocked_domain"),
        ("http://mixed.example/one/page/two", None),
        ("http://mixed.example/", None),
        ("http://a.example/the-two-girls.html", "blocked_word"),
        ("http://a.example/axx.xb", "blocked_word"),
        ("http://a.example/Casino/", "blocked_word"),
        ("http://a.example/casinos", None),
        ("http://a.example/my_casino?x", "blocked_word"),
        ("http://a.example/poof", "blocked_word"),
        ("http://a.example/adult", None),
        ("http://a.example/adult/adult", "blocked_word"),
        ("http://a.example/Sexy-adult", "blocked_word"),
        ("http://a.example/essexyadults", None),
        ("http://a.example/?u=http://bad.example", None),
        ("", None),
        (None, None),
        ("no url at all", None),
    ],
)
def test_verdicts(lists: Url, url: str | None, reason: str | None) -> None:
    verdict = blocked(url, compile_rules(lists))
    assert (verdict.reason if verdict else None) == reason
    assert verdict is None or verdict.stage == "url"


def test_the_soft_limit_is_the_recipes(lists: Url) -> None:
    assert blocked("http://a/adult", compile_rules(lists.model_copy(update={"soft_limit": 1})))
    assert not blocked("http://a/adult/sexy", compile_rules(lists.model_copy(update={"soft_limit": 3})))


def test_shipped_lists() -> None:
    assert builtin_lists() == [
        "fineweb-banned-subwords", "fineweb-banned-words", "fineweb-soft-banned-words", "fineweb-urls",
        "refinedweb-hard", "refinedweb-soft", "refinedweb-strict",
    ]  # fmt: skip
    rules = compile_rules(
        Url(
            blocked_domains=("builtin:fineweb-urls",),
            strict_words=("builtin:fineweb-banned-subwords",),
            hard_words=("builtin:fineweb-banned-words",),
            soft_words=("builtin:fineweb-soft-banned-words",),
        )
    )
    assert len(rules.addresses) == 19587
    assert (len(rules.hard), len(rules.soft)) == (216, 88)
    for url in ("https://en.wikipedia.org/wiki/Essex", "https://www.bbc.co.uk/news/uk-england-sussex-1"):
        assert blocked(url, rules) is None


def test_no_list_blocks_nothing() -> None:
    assert blocked("http://bad.example/casino", compile_rules(Url())) is None


def test_lists_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for source, words in (
        ("builtin:fineweb-bannedwords", "nearest: fineweb-banned-words"),
        (str(tmp_path / "absent"), "absent"),
        (str(empty), "is empty"),
    ):
        with pytest.raises(UsageError, match=words):
            compile_rules(Url(hard_words=(source,)))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://User:pw@WWW.Example.com.:80/x@y", "www.example.com"),
        ("https://[2001:db8::1]:443/", "[2001:db8::1]"),
        ("http://example.com?q", "example.com"),
        ("urn:uuid:1", None),
        ("", None),
        (None, None),
    ],
)
def test_hosts(url: str | None, host: str | None) -> None:
    assert host_of(url) == host
