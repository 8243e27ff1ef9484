"""What split tests tell of labels: bits, and how many labels bits let anybody guess."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from opboost.label_noise import bits_of_tests, most_guessed


@pytest.mark.parametrize(("n_possible", "n_asked"), [(10, 0), (10, 3), (10, 10), (1, 1), (0, 0), (300, 40)])
def test_bits_are_those_of_the_number_and_the_choice_of_tests(n_possible: int, n_asked: int) -> None:
    wanted = math.log2(math.comb(n_possible, n_asked)) + math.log2(n_possible + 1)
    assert bits_of_tests(n_possible, n_asked) == pytest.approx(wanted)


def test_no_bit_is_chance_and_a_bit_for_each_label_is_everything() -> None:
    assert most_guessed(0, 100) == pytest.approx(0.5)
    assert most_guessed(100, 100) == most_guessed(500, 100) == pytest.approx(1.0)
    shares = [most_guessed(bits, 100) for bits in range(0, 101, 5)]
    assert shares == sorted(shares)


@pytest.mark.parametrize("n_messages", [2, 4, 8])
def test_no_function_of_three_labels_with_so_many_values_lets_more_be_guessed(n_messages: int) -> None:
    """Every way to map three labels to messages is tried, or many of them; the best guess is label by label."""
    labels = np.array(list(product((0, 1), repeat=3)))
    draw = np.random.default_rng(0)
    maps = product(range(2), repeat=8) if n_messages == 2 else draw.integers(0, n_messages, (20_000, 8))
    best = 0.0
    for sent in maps:
        groups = [labels[np.array(sent) == message] for message in range(n_messages)]
        right = sum(np.maximum(group.sum(0), len(group) - group.sum(0)).sum() for group in groups if len(group))
        best = max(best, right / labels.size)
    assert best <= most_guessed(math.log2(n_messages), 3) + 1e-9
    assert best > 0.6
