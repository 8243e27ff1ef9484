"""Sentences of a plan: their odds hold for every pair of values, and what is not protected is said."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import encode
from opboost.schema import ColumnSchema, Kind, Missing
from parties.reports.sentences import LARGEST_ODDS, column_sentence, everyday_difference, odds


def mechanism(lower: float = 0, upper: float = 5000, **settings: Any) -> ColumnMechanism:
    schema = ColumnSchema(name="income", lower=lower, upper=upper)
    return ColumnMechanism(schema, MechanismSettings(**{"domain_size": 1000, "epsilon": 0.1, **settings}))


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 0.1},
        {"epsilon": 0.01},
        {"epsilon": 2.0},
        {"mechanism": "local"},
        {"mechanism": "adj"},
        {"law": "exponential"},
        {"domain_size": 50},
        {"law": "bounded_laplace"},
        {"epsilon": 0.001},
    ],
)
@pytest.mark.parametrize("bounds", [(0, 5000), (0.5, 1.25), (-3, 60)])
def test_the_odds_of_a_sentence_hold_for_every_pair_so_far_apart(settings: dict[str, Any], bounds: Any) -> None:
    """The worst pair by the exact table never beats the odds, and comes close to them."""
    one = mechanism(*bounds, **settings)
    difference, points = everyday_difference(one)
    values = np.linspace(*bounds, 4001)
    pairs = values[values <= bounds[1] - difference]
    codes = [
        encode(pd.Series(side), one.schema, domain=one.settings.domain).codes - 1
        for side in (pairs, np.minimum(pairs + difference, bounds[1]))
    ]
    table = one.value.log_probabilities()
    with np.errstate(invalid="ignore"):
        ratios = np.abs(table[codes[0]] - table[codes[1]])
    worst = float(np.nanmax(np.where(np.isfinite(ratios), ratios, 0)))
    assert np.abs(codes[0] - codes[1]).max() <= points
    assert worst <= one.loss(points)
    said = re.search(r"at most ([\d.,]+) to 1", column_sentence(one))
    if one.loss(points) <= math.log(LARGEST_ODDS):
        assert said is not None
        assert math.exp(one.loss(points)) <= float(said[1].replace(",", "")) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (math.log(1.6), "1.60 to 1"),
        (math.log(1.601), "1.61 to 1"),
        (3.0, "20.1 to 1"),
        (5.0, "149 to 1"),
        (9.0, "8,104 to 1"),
        (99.9, "e^99.9 to 1, which is no protection"),
        (math.inf, "any odds"),
    ],
)
def test_odds_are_rounded_up(loss: float, said: str) -> None:
    assert odds(loss) == said


def test_sentences_say_what_is_not_protected() -> None:
    assert "published exactly" in column_sentence(mechanism(mechanism="local"))
    assert "without noise: nothing" in column_sentence(mechanism(epsilon=math.inf))
    assert "no protection" in column_sentence(mechanism())
    town = ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("a", "b"), missing=Missing.CATEGORY)
    said = column_sentence(ColumnMechanism(town, MechanismSettings(category_epsilon=1.0)))
    assert said.count("2.72 to 1") == 2
