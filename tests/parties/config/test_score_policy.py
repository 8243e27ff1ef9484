"""What is written of scores under each policy, and which policies mean nothing for a model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from opboost.trees.losses import Logistic, Loss, Poisson, Quantiles, Softmax, SquaredError
from parties.config.score_policy import RevealSection
from parties.errors import ConfigError
from parties.vertical.prediction_output import prediction_columns, prediction_table
from protocols.messages.prediction import RecordStatus
from protocols.messages.vertical import Terms

STATUS = np.array([0, 0, RecordStatus.UNKNOWN, 0, RecordStatus.REFUSED_DAILY_LIMIT, 0], np.uint8)
SCORES = np.array([0.2, 0.93, np.nan, 0.57, np.nan, 0.5649])
TABLE = prediction_table(pd.Index(list("abcdef"), dtype=object), SCORES, STATUS)


def test_without_a_policy_everything_is_written_with_a_status_per_id() -> None:
    pd.testing.assert_frame_equal(RevealSection().apply(TABLE), TABLE)
    assert TABLE["status"].tolist() == ["ok", "ok", "missing_passive_columns", "ok", "refused_daily_limit", "ok"]
    assert RevealSection().words() is None


def test_rounding_keeps_every_id() -> None:
    found = RevealSection(round=1).apply(TABLE)
    assert found["id"].tolist() == list("abcdef")
    assert found["prediction"].fillna(-1).tolist() == [0.2, 0.9, -1, 0.6, -1, 0.6]
    assert found["status"].tolist() == TABLE["status"].tolist()


@pytest.mark.parametrize(
    ("bins", "expected"),
    [
        (5, ["0.2 to 0.4", "0.8 to 1", None, "0.4 to 0.6", None, "0.4 to 0.6"]),
        (2, ["0 to 0.5", "0.5 to 1", None, "0.5 to 1", None, "0.5 to 1"]),
        ([0.2, 0.57], ["0.2 to 0.57", "0.57 and over", None, "0.57 and over", None, "0.2 to 0.57"]),
        ([0.57], ["under 0.57", "0.57 and over", None, "0.57 and over", None, "under 0.57"]),
    ],
)
def test_a_bin_takes_the_place_of_a_score_and_holds_its_lower_edge(
    bins: int | list[float], expected: list[str | None]
) -> None:
    found = RevealSection(bins=bins).apply(TABLE)
    assert found["prediction"].tolist() == expected
    assert not [text for text in found.to_csv().split(",") if "0.93" in text or "0.5649" in text]


def test_only_the_best_are_written_in_the_order_of_their_rank() -> None:
    found = RevealSection(top=3).apply(TABLE)
    assert found.to_dict("list") == {
        "id": ["b", "d", "f"],
        "rank": [1, 2, 3],
        "prediction": [0.93, 0.57, 0.5649],
        "status": ["ok"] * 3,
    }
    assert RevealSection(top=100).apply(TABLE)["id"].tolist() == ["b", "d", "f", "a"]


def test_neither_rank_nor_order_tells_what_rounding_or_bins_hid() -> None:
    swapped = TABLE.assign(prediction=[0.2, 0.93, np.nan, 0.5649, np.nan, 0.57])
    for policy in (RevealSection(top=3, round=1), RevealSection(top=3, bins=5)):
        found = policy.apply(TABLE)
        assert found["id"].tolist() == ["b", "d", "f"]
        assert found["rank"].tolist() == [1, 2, 2]
        pd.testing.assert_frame_equal(policy.apply(swapped), found)
    assert not RevealSection(top=3).apply(swapped).equals(RevealSection(top=3).apply(TABLE))


@pytest.mark.parametrize(
    ("policy", "loss", "words"),
    [
        ({"top": 3}, Softmax(3), "one score per record, but the model has 3 scores"),
        ({"bins": 3}, SquaredError(), "reg:squarederror; list the edges"),
        ({"bins": 3}, Poisson(), "count:poisson; list the edges"),
    ],
)
def test_a_policy_without_meaning_for_the_model_is_refused(policy: dict[str, int], loss: Loss, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RevealSection(**policy).check(loss)


@pytest.mark.parametrize("loss", [Logistic(), SquaredError(), Poisson(), Softmax(3)])
def test_edges_and_digits_fit_every_model(loss: Loss) -> None:
    RevealSection(bins=[-1.5, 2]).check(loss)
    RevealSection(round=0).check(loss)


@pytest.mark.parametrize(
    "wrong",
    [
        {"top": 0},
        {"bins": 1},
        {"bins": []},
        {"bins": [2, 1]},
        {"bins": [1, 1]},
        {"bins": [float("nan")]},
        {"bins": [float("inf")]},
        {"round": -1},
        {"round": 13},
        {"round": 1, "bins": 2},
        {"first": 3},
    ],
    ids=str,
)
def test_a_policy_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RevealSection(**wrong)


def test_policies_have_one_wording_each() -> None:
    policies = [
        {"top": 3},
        {"top": 4},
        {"bins": 4},
        {"bins": [4]},
        {"bins": [0.1, 4]},
        {"round": 4},
        {"top": 3, "round": 4},
    ]
    words = [RevealSection(**policy).words() for policy in policies]
    assert len(set(words)) == len(words)
    assert RevealSection(bins=[1, 2]).words() == RevealSection(bins=[1.0, 2.0]).words()
    longest = RevealSection(top=10**9, bins=[-1e-300 / 7 * (20 - i) for i in range(20)])
    assert Terms(reveal=longest.words()).reveal == longest.words()


def test_quantiles_are_written_under_their_names_and_made_coarse() -> None:
    close = Quantiles((0.1234561, 0.1234562)), np.zeros((1, 2)), np.zeros(1, np.uint8)
    assert len(prediction_columns(close[1], close[2], loss=close[0])) == 3
    loss, found = Quantiles((0.1, 0.9)), np.array([[0.12, 0.98], [np.nan, np.nan]])
    table = prediction_table(pd.Index(["a", "b"], dtype=object), found, np.array([0, 1], np.uint8), loss=loss)
    assert list(table.columns) == ["id", "quantile_0.1", "quantile_0.9", "status"]
    coarse = RevealSection(round=1).apply(table)
    assert coarse["quantile_0.9"].fillna(-1).tolist() == [1.0, -1]
    with pytest.raises(ConfigError, match="one score per record, but the model has 2 scores"):
        RevealSection(top=1).check(loss)
