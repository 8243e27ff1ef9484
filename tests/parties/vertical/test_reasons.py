"""Reason codes of records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.routing import Router, SplitTests
from opboost.schema import ColumnSchema, Kind
from opboost.table_format import ColumnFormat, TableFormat
from opboost.trees.losses import Logistic, Loss, Softmax
from opboost.trees.tree import Ensemble, Feature
from parties.config.score_policy import RevealSection
from parties.errors import ConfigError
from parties.vertical.reasons import OwnWords, check_reasons, reason_table


def _model(n_outputs: int = 1) -> Ensemble:
    loss: Loss = Logistic() if n_outputs == 1 else Softmax(n_outputs)
    features = (Feature("age"), Feature("c0", "shop", 3), Feature("c1", "shop", 1), Feature("c0", "shop", 5))
    return Ensemble((), np.zeros(n_outputs), loss, features)


def test_reasons_are_the_positive_contributions_the_largest_first() -> None:
    found = reason_table(_model(), np.array([[0.1, 0.3, -1], [-1, -2, -3], [0, 0.2, 0.2], [np.nan] * 3]), 2)
    expected = [["shop: c0", "age"], ["", ""], ["shop: c0", "shop: c1"], ["", ""]]
    assert found.fillna("").to_numpy().tolist() == expected
    assert list(found.columns) == ["reason_1", "reason_2"]
    assert reason_table(_model(), np.ones((1, 3)), 9).shape == (1, 3)


def test_reasons_beside_coarse_scores_or_of_several_scores_are_refused() -> None:
    check_reasons(_model(), RevealSection())
    with pytest.raises(ConfigError, match=r"one score per record, but the model has 3\. Nothing was sent"):
        check_reasons(_model(3), RevealSection())
    for policy in (RevealSection(round=2), RevealSection(bins=4), RevealSection(top=5)):
        with pytest.raises(ConfigError, match="more of a score than `reveal` lets out"):
            check_reasons(_model(), policy)


SPEND = ColumnSchema(name="spend", lower=0, upper=100)
GRADE = ColumnSchema(name="grade", kind=Kind.ORDERED, categories=("low", "middle", "high"))
TOWN = ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("Bern", "Genf"))
MECHANISMS = tuple(
    ColumnMechanism(one, MechanismSettings(epsilon=1.0, domain_size=n))
    for one, n in ((SPEND, 101), (GRADE, 3), (TOWN, 2))
)


def words(*, by_cells: bool = False) -> OwnWords:
    low = MECHANISMS[0].settings.domain.lo
    sources = (("spend", None), ("spend", None), ("grade", None), ("town", 1))
    cuts = np.array([low + 20.5, np.inf, MECHANISMS[1].settings.domain.lo + 1.5, 0.5])
    return OwnWords("shop", Router(MECHANISMS, SplitTests(sources, cuts, np.zeros(4, np.bool_), by_cells)), True)


def test_a_passive_party_reads_reasons_in_its_own_words() -> None:
    table = pd.DataFrame({"id": ["shop: c0"], "reason_1": ["shop: c3"], "reason_2": ["age"], "reason_3": ["other: c0"]})
    assert words().reasons(table).iloc[0].tolist() == ["shop: c0", "town=Genf", "age", "other: c0"]


def test_a_passive_party_reads_thresholds_in_its_own_unit() -> None:
    told = {"owner": "shop", "column": "c0", "ranks": [3, 9], "tests": [0, 1], "scores": [[1.0], [2.0], [3.0]]}
    found = words().dependence(told)
    assert (found["column"], found["thresholds"]) == ("spend", [20.5, None])
    assert words().dependence({**told, "column": "c1", "tests": [2]})["thresholds"] == ["middle"]
    assert words().dependence({**told, "column": "c3", "tests": [3]})["thresholds"] == [None]
    by_cells = {"owner": "shop", "column": "c0", "cells": [0, 1], "scores": [[1.0], [2.0]]}
    assert words(by_cells=True).dependence(by_cells)["thresholds"] == [20.5]
    # Of numbers there are no dates beside the thresholds.
    assert "times" not in found
    mine = {"owner": None, "column": "age", "thresholds": [30.0]}
    assert words().dependence(mine) == mine


def test_a_passive_party_reads_thresholds_of_times_as_dates_too() -> None:
    of_days = TableFormat(columns={"spend": ColumnFormat(unit_s=86400)})
    told = {"owner": "shop", "column": "c0", "ranks": [3, 9], "tests": [0, 1], "scores": [[1.0], [2.0], [3.0]]}
    plain = words()
    found = replace(plain, router=replace(plain.router, format=of_days)).dependence(told)
    assert (found["thresholds"], found["times"]) == ([20.5, None], ["1970-01-21", None])


@pytest.mark.parametrize("wrong", [{"column": "c9"}, {"tests": [99]}, {"tests": "x"}, {"column": []}], ids=str)
def test_an_explanation_of_another_model_is_refused(wrong: dict[str, object]) -> None:
    told = {"owner": "shop", "column": "c0", "ranks": [3], "tests": [0], **wrong}
    with pytest.raises(ConfigError, match="another model"):
        words().dependence(told)
