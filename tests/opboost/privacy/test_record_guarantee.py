"""What a model of records promises to one of them: for whom, under which conditions, in which words."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from opboost.errors import ParameterError
from opboost.privacy.record_guarantee import RecordGuarantee, WeakerPromise

TRAINED = RecordGuarantee(
    epsilon=0.5, delta=5e-8, account="exact Gaussian", mode="certified", is_secure=True, bounds_are_public=True
)


def test_a_records_guarantee_from_secure_bits_and_public_bounds_is_certified_and_says_for_whom():
    assert TRAINED.certified
    assert TRAINED.notion == "(epsilon, delta)-DP"
    assert "epsilon 0.5 at delta 5e-08 (exact Gaussian)" in str(TRAINED)
    assert "differ by one record, added or removed" in str(TRAINED)
    assert "ot certified" not in str(TRAINED)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mode": "paper"}, "follows a publication to the letter"),
        ({"is_secure": False}, "NOT FOR RELEASE"),
        ({"bounds_are_public": False}, "bounds were taken from the data"),
        ({"epsilon": math.inf}, "No privacy guarantee"),
        ({"epsilon": 36.1}, "Nothing is protected: at an epsilon above 36 or a delta above 0.01"),
        ({"delta": 0.02}, "Nothing is protected: at an epsilon above 36 or a delta above 0.01"),
    ],
)
def test_anything_less_is_not_certified_and_said_in_words(change, words):
    guarantee = replace(TRAINED, **change)
    assert not guarantee.certified
    assert words in str(guarantee)
    assert words not in str(TRAINED)
    assert guarantee.to_dict()["certified"] is False


def test_a_publications_own_claim_stands_beside_the_true_epsilon():
    guarantee = replace(TRAINED, mode="paper", epsilon=1.06, claimed_epsilon=0.15)
    assert "epsilon 1.06" in str(guarantee)
    assert "claims epsilon 0.15" in str(guarantee)


def test_without_a_delta_the_notion_is_pure():
    assert replace(TRAINED, delta=0.0).notion == "epsilon-DP"
    assert "delta" not in str(replace(TRAINED, delta=0.0))
    assert replace(TRAINED, epsilon=math.inf).notion == "none"


def test_a_records_guarantee_is_plain_json_with_infinity_as_a_string():
    read = json.loads(json.dumps(replace(TRAINED, epsilon=math.inf).to_dict(), allow_nan=False))
    assert (read["epsilon"], read["notion"], read["mode"]) == ("inf", "none", "certified")
    assert read["not_protected"] == list(TRAINED.not_protected)


@pytest.mark.parametrize(
    "change",
    [{"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": math.nan}, {"delta": 1.0}, {"delta": -0.1}, {"mode": "certain"}],
)
def test_a_guarantee_that_is_none_is_refused(change):
    with pytest.raises(ParameterError):
        replace(TRAINED, **change)


@pytest.mark.parametrize("epsilon", [math.nan, 0.0, -1.0])
def test_a_weaker_promise_is_a_promise_too(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="a weaker promise needs epsilon > 0"):
        WeakerPromise(against="a worker", epsilon=epsilon)


def test_a_guarantee_of_records_is_a_sentence_in_notebooks():
    of_records = RecordGuarantee(
        epsilon=1.0, delta=0.0, account="<i>", mode="certified", is_secure=True, bounds_are_public=True
    )
    shown = of_records._repr_html_()
    assert "is protected against everyone who sees the model" in shown
    assert "<i>" not in shown
