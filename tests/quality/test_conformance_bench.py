"""The conformance bench at toy size, so that it cannot rot: without the peer it says so and shows our firings."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench import conformance


def test_without_the_peer(capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance.main(["--toy"]) == 0
    shown = capsys.readouterr().out
    assert "the peer is absent" in shown
    assert "gopher_rep_top_4_gram_char_frac" in shown


def test_bars_and_causes() -> None:
    texts = conformance.toy_texts()
    ours, _ = conformance.ours(texts)
    lines, good = conformance.compare(texts, ours)
    assert good
    assert sum("agreement 100.00%" in line for line in lines) == 4
    other = {name: ~mask if name in ("fineweb", "fineweb_list_ratio") else mask for name, mask in ours.items()}
    lines, good = conformance.compare(texts, other)
    assert not good
    assert any("unexplained: fineweb_list_ratio" in line for line in lines)
    assert conformance.ratio(np.array([True, True, False]), np.array([True, False, False])) == 0.5
