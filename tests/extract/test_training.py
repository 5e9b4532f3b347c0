"""How the model is trained: labels, folds, token scores, and the command itself at toy size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.cli import single
from jobs.extractor import labels, tokens
from jobs.extractor.folds import domain_of, folds_of
from jobs.extractor.labelling import block_texts
from jobs.extractor.pages import Page
from pipeline.extract import model
from pipeline.extract.scan import WORDS, scan
from tests.extract.made_pages import made, write

words = st.lists(st.sampled_from(list("abcdef")), max_size=12).map(" ".join)


class TestLabels:
    def test_a_menu_word_that_the_text_holds_too_is_not_main_text(self) -> None:
        texts = ["river people town", "The river has run low since the spring", "and the town waits .", "town river"]
        share, counts = labels.align(texts, "The river has run low since the spring\nand the town waits.") or ([], [])
        assert share.tolist() == [0, 1, 1, 0]
        assert counts.tolist() == [3, 8, 4, 2]

    def test_part_of_a_block(self) -> None:
        share, _ = labels.align(["By Ann the river has run low 3 min"], "the river has run low") or ([], [])
        assert share.tolist() == pytest.approx([5 / 9])

    def test_of_repeated_text_one_copy_counts(self) -> None:
        text = "the river has run low since the spring"
        share, _ = labels.align([text, "menu", text], text) or ([], [])
        assert sorted(share.tolist()) == [0, 0, 1]

    def test_blocks_without_words_go_with_the_lower_of_their_neighbours(self) -> None:
        share, counts = labels.align(["***", "the river", "—", "the town", "—", "menu"], "the river the town") or (
            [],
            [],
        )
        assert counts.tolist() == [0, 2, 0, 2, 0, 1]
        assert share.tolist() == [1, 1, 1, 1, 0, 0]

    def test_chinese_by_character(self) -> None:
        share, counts = labels.align(["今天天气很好", "首页"], "天气很好") or ([], [])
        assert counts.tolist() == [6, 2]
        assert share.tolist() == pytest.approx([4 / 6, 0])

    @settings(deadline=None)
    @given(st.lists(words, min_size=1, max_size=6), words)
    def test_no_word_of_the_main_text_is_used_twice(self, texts: list[str], gold: str) -> None:
        share, counts = labels.align(texts, gold) or ([], [])
        assert ((share >= 0) & (share <= 1)).all()
        assert (share * counts).sum() <= len(gold.split()) + 1e-3

    @settings(deadline=None)
    @given(st.lists(words.filter(bool), min_size=1, max_size=6))
    def test_a_page_that_is_all_main_text_is_all_kept(self, texts: list[str]) -> None:
        share, _ = labels.align(texts, "\n".join(texts)) or ([], [])
        assert share.tolist() == [1] * len(texts)

    def test_pages_of_any_length_weigh_about_the_same(self) -> None:
        short, long = (labels.weights(np.full(n, 50, np.int32), 50 * n).sum() for n in (4, 400))
        assert short == pytest.approx(long, rel=0.05)


class TestFolds:
    @pytest.mark.parametrize(
        ("url", "domain"),
        [
            ("https://news.example.com/a?b#c", "example.com"),
            ("http://example.com:8080", "example.com"),
            ("https://www.bbc.co.uk/x", "bbc.co.uk"),
            ("https://a.b.gov.pl/", "b.gov.pl"),
            ("https://co.uk/", "co.uk"),
            ("http://192.168.0.1/x", "192.168.0.1"),
            ("http://[::1]/x", "[::1]"),
            ("no address", "no address"),
        ],
    )
    def test_domains(self, url: str, domain: str) -> None:
        assert domain_of(url) == domain

    @given(st.lists(st.sampled_from([f"d{i}.example" for i in range(30)]), max_size=200), st.integers(2, 6))
    def test_no_domain_is_split_and_folds_are_even(self, domains: list[str], n: int) -> None:
        folds = folds_of(domains, n)
        assert len({(domain, fold) for domain, fold in zip(domains, folds, strict=True)}) == len(set(domains))
        sizes = [folds.count(fold) for fold in range(n)]
        largest = max((domains.count(domain) for domain in domains), default=0)
        assert max(sizes) - min(sizes) <= max(largest, 1)
        assert folds_of(list(reversed(domains)), n) == list(reversed(folds))


class TestTokens:
    PAGE = (
        b'<div class="menu"><p>one two</p></div><div class="story"><div class="story wide"><p>three four five six</p>'
        b'</div><p class="wide">seven eight</p></div>'
    )

    def test_each_word_counts_once_below_a_token(self) -> None:
        blocks = scan(self.PAGE)
        words = blocks.counts[:, WORDS]
        assert words.tolist() == [2, 4, 2]
        found = tokens.shares_of(blocks, np.array([0, 1, 0.5], np.float32), words)
        known = dict(zip(found.tokens.tolist(), zip(found.kept, found.dropped, strict=True), strict=True))
        assert known[fnv("menu")] == (0, pytest.approx(2 / 3))
        assert known[fnv("story")] == (1, pytest.approx(1 / 3))
        assert known[fnv("wide")] == (1, pytest.approx(1 / 3))

    def test_scores_tell_kept_from_dropped_and_few_sites_are_not_believed(self) -> None:
        blocks = scan(self.PAGE)
        words = blocks.counts[:, WORDS]
        share = tokens.shares_of(blocks, np.array([0, 1, 1], np.float32), words)
        table = tokens.learn([share] * 20, list(range(20)))
        score = dict(zip(table.keys.tolist(), table.values.tolist(), strict=True))
        assert score[fnv("story")] == pytest.approx(np.log(21.5 / 1.5))
        assert score[fnv("menu")] == pytest.approx(-np.log(21.5 / 1.5))
        assert not tokens.learn([share] * 20, [0] * 20).keys.any()
        assert not tokens.learn([], []).keys.any()


def fnv(word: str) -> int:
    value = 2166136261
    for byte in word.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


class TestCommand:
    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("pages")
        empty = Page("https://empty.example/", b"<html><body><nav><a href=/>Home</a></nav></body></html>")
        write(made(30), folder, [*made(6, seed=9), empty])
        return folder

    def test_the_same_pages_give_the_same_bytes_in_another_process(self, folder: Path, tmp_path: Path) -> None:
        pytest.importorskip("lightgbm")
        out = tmp_path / "model.npz"
        command = [str(folder), "--trees", "12", "6", "--out", str(out)]
        assert single("jobs.train_extractor", command) == 0
        done = subprocess.run([sys.executable, "-m", "jobs.train_extractor", *command, "--check"], check=False)
        assert done.returncode == 0
        fitted = model.load(out.read_bytes())
        assert fitted.about["pages"]["gold"] == 30
        assert fitted.about["pages"]["agreed"] == 6
        assert fitted.about["pages"]["learnt_from"] == 36
        assert set(fitted.about["pages"]["files"]) == {"gold.parquet", "pages.warc.gz"}
        assert len(fitted.first.leaf) == 12
        out.write_bytes(out.read_bytes() + b" ")
        assert single("jobs.train_extractor", [*command, "--check"]) == 1

    def test_what_it_learns_is_where_the_text_is(self, folder: Path, tmp_path: Path) -> None:
        pytest.importorskip("lightgbm")
        out = tmp_path / "model.npz"
        assert single("jobs.train_extractor", [str(folder), "--trees", "40", "20", "--out", str(out)]) == 0
        fitted = model.load(out.read_bytes())
        kept = right = all_right = 0
        for page in made(10, seed=2):
            blocks = scan(page.html)
            share, words = labels.align(block_texts(blocks), page.gold or "") or ([], [])
            mask, _ = model.cut(model.predict(fitted, blocks), blocks.counts[:, WORDS])
            kept += (words * mask).sum()
            right += (words * mask * share).sum()
            all_right += (words * share).sum()
        assert right / kept > 0.95
        assert right / all_right > 0.95

    def test_a_folder_without_pages_ends_in_one_line(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert single("jobs.train_extractor", [str(tmp_path)]) == 2
        assert "no training pages" in capsys.readouterr().err

    def test_the_file_says_what_made_it(self) -> None:
        about = model.shipped().about
        assert len(about["code"]) == 64
        assert about["pages"]["gold"] > 1000
        assert json.loads(json.dumps(about)) == about
