"""Threads, trials at a time and compiling: every choice trains, and rates are told against one trial on one thread."""

from __future__ import annotations

from dataclasses import asdict

import pytest

pytest.importorskip("torch")

from bench.loop_choices import CHOICES, Choice, Size, choices_table, train_for

TINY = Size(width=8, seq_len=4, batch=2, head_dim=4)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_choice_trains_for_as_long_as_told(n_threads):
    found = train_for(TINY, Choice(1, n_threads), seconds=0.05)
    assert found["tokens_a_second"] > 0
    assert found["n_params"] > 0


def test_rates_are_told_against_one_trial_on_one_thread():
    rates = dict(zip(CHOICES, (100.0, 120.0, 190.0, 180.0, 250.0), strict=True))
    found = [
        {"size": asdict(TINY), "choice": asdict(choice), "tokens_a_second": rate, "n_params": 1000, "warm_s": 1.0}
        for choice, rate in rates.items()
    ]
    lines = choices_table(found).splitlines()[2:]
    assert [line.split(" | ")[2] for line in lines] == [choice.in_words for choice in CHOICES]
    assert [float(line.split(" | ")[4]) for line in lines] == [1.0, 1.2, 1.9, 1.8, 2.5]
