"""What a release promises: sums over columns, words for what is not protected, and plain values for JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.errors import ParameterError
from opboost.privacy.guarantee import (
    CHANGED_VALUES,
    ROUTED_ANSWERS,
    ColumnGuarantee,
    compose,
    exposed,
    nothing_released,
    rounded_up,
    with_tests,
)
from opboost.privacy.laws import MOST_EPSILON
from opboost.privacy.record_guarantee import RecordGuarantee

AGE = ColumnGuarantee(
    column="age",
    mechanism="global",
    law="clamped",
    epsilon=0.25,
    unit="1 original units",
    domain_loss=24.0,
    missing_epsilon=0.0,
    parameters={"epsilon": 0.25},
)
CITY = replace(AGE, column="city", mechanism="randomised_response", law="", epsilon=3.0, domain_loss=3.0)

losses = st.floats(0, 1000)
columns = st.builds(lambda e, d, m: replace(AGE, epsilon=e, domain_loss=d, missing_epsilon=m), losses, losses, losses)


@given(st.lists(columns, min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_losses_add_up_over_the_columns_with_those_of_missingness(released):
    guarantee = compose(tuple(released), is_secure=True)
    assert guarantee.epsilon == pytest.approx(math.fsum(c.epsilon + c.missing_epsilon for c in released))
    assert guarantee.domain_loss == pytest.approx(math.fsum(c.domain_loss + c.missing_epsilon for c in released))
    assert guarantee.columns == tuple(released)


@given(columns, st.integers(1, 10))
@settings(max_examples=100, deadline=None)
def test_releasing_a_column_again_costs_as_much_again(column, k):
    assert compose((column,) * k, is_secure=True).epsilon == pytest.approx(
        k * compose((column,), is_secure=True).epsilon
    )


def test_noisy_columns_from_secure_bits_and_public_bounds_are_certified():
    guarantee = compose((AGE, CITY), is_secure=True)
    assert guarantee.notion == "dLDP"
    assert guarantee.certified
    assert (guarantee.epsilon, guarantee.domain_loss) == (3.25, 27.0)


def test_the_guarantee_says_that_it_grows_with_the_distance_and_names_the_worst_case():
    text = str(compose((AGE, CITY), is_secure=True))
    assert "in proportion to the distance between records" in text
    assert "at most 3.25" in text
    assert "at most 27" in text


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ({"is_secure": False}, "NOT FOR RELEASE"),
        ({"is_secure": True, "bounds_are_public": False}, "bounds were taken from the data"),
    ],
)
def test_seeded_bits_or_bounds_from_the_data_are_never_certified_and_said_in_words(conditions, words):
    guarantee = compose((AGE,), **conditions)
    assert not guarantee.certified
    assert words in str(guarantee)
    assert words not in str(compose((AGE,), is_secure=True))


def test_labels_and_membership_are_named_as_unprotected():
    assert {"the active party's labels and own columns", "which records take part"} <= set(
        compose((AGE,), is_secure=True).not_protected
    )


def test_losses_of_several_records_of_one_person_are_said_to_add_up():
    """A table may have a person twice, and an estimator's rows of `eval_set` may be training rows."""
    told = "several records of one person, and several releases or models of one record: their losses add up"
    assert told in compose((AGE,), is_secure=True).not_protected


def test_a_local_map_is_said_to_publish_its_cells():
    local = replace(AGE, mechanism="local", domain_loss=math.inf)
    assert "index is published exactly" in str(compose((CITY, local), is_secure=True))
    assert "index is published exactly" not in str(compose((CITY, AGE), is_secure=True))


def test_the_bits_that_cells_publish_add_up_and_name_no_column():
    local = replace(AGE, mechanism="local", domain_loss=math.inf, n_cells=8, narrowest_cell=2)
    (told,) = [one for one in compose((local, local), is_secure=True).not_protected if "cell" in one]
    assert "6 bits of every record" in told
    assert "age" not in told


def test_what_else_is_open_stands_under_not_protected_and_routed_answers_with_their_number():
    guarantee = compose((AGE,), is_secure=True, not_protected=(ROUTED_ANSWERS, CHANGED_VALUES))
    assert guarantee.not_protected[-2:] == (ROUTED_ANSWERS, CHANGED_VALUES)
    counted = with_tests(guarantee, 17)
    assert counted.not_protected[-2].startswith(ROUTED_ANSWERS)
    assert "17 exact bits per record, and another model asks its own" in str(counted)
    assert with_tests(compose((AGE,), is_secure=True), 17) == compose((AGE,), is_secure=True)


@pytest.mark.parametrize("n_cells", [None, 16])
def test_exact_answers_are_told_of_all_records_that_are_scored_new_or_not(n_cells):
    """Held-out records are answered for in the training run, and an owner may allow those that were released."""
    (told,) = exposed(allow_routed=True, redraws=False, n_cells=n_cells)
    assert told.startswith("records that are scored in mode routed, held-out ones among them")


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": math.nan},
        {"domain_loss": math.nan},
        {"missing_epsilon": math.nan},
        {"epsilon": -0.1},
        {"epsilon": math.inf},
    ],
)
def test_a_column_whose_loss_is_no_number_has_no_guarantee(change):
    with pytest.raises(ParameterError, match=r"column 'age': .* is no promise\. Nothing was drawn"):
        replace(AGE, **change)


@pytest.mark.parametrize("change", [{"points": 0}, {"n_cells": -1}, {"narrowest_cell": -1}])
def test_a_column_with_numbers_of_points_that_cannot_be_has_no_guarantee(change):
    with pytest.raises(ParameterError, match="at least one point"):
        replace(AGE, **change)


def test_one_column_without_noise_leaves_no_guarantee_at_all():
    bare = replace(AGE, epsilon=math.inf, domain_loss=math.inf, parameters={"epsilon": math.inf})
    guarantee = compose((CITY, bare), is_secure=True)
    assert guarantee.notion == "none"
    assert not guarantee.certified
    assert str(guarantee).startswith("No privacy guarantee.")
    assert guarantee.epsilon == math.inf


def test_a_missingness_bit_without_noise_leaves_no_guarantee_at_all():
    assert compose((replace(AGE, missing_epsilon=math.inf),), is_secure=True).notion == "none"


def test_without_columns_nothing_was_released():
    guarantee = compose((), is_secure=True)
    assert guarantee == nothing_released()
    assert (guarantee.epsilon, guarantee.domain_loss, guarantee.certified) == (0.0, 0.0, False)
    assert "nothing was released" in str(guarantee)


def test_a_guarantee_is_plain_json_with_infinity_as_a_string():
    local = replace(AGE, mechanism="local", domain_loss=math.inf)
    guarantee = compose((AGE, local), is_secure=False)
    read = json.loads(json.dumps(guarantee.to_dict(), allow_nan=False))
    assert read["domain_loss"] == "inf"
    assert read["columns"][1]["domain_loss"] == "inf"
    assert read["columns"][0]["parameters"] == {"epsilon": 0.25}
    assert read["not_protected"] == list(guarantee.not_protected)
    assert read["is_secure"] is False


@given(st.floats(1e-300, 1e300), st.integers(2, 6))
def test_no_number_of_a_guarantee_is_written_as_a_smaller_one(loss, digits):
    written = float(rounded_up(loss, digits))
    assert loss * (1 - 1e-8) <= written <= loss * (1 + 10 ** (1 - digits) + 1e-8)


def test_a_number_that_has_so_few_digits_is_written_as_it_is_and_others_are_not_rounded_to_the_nearest():
    assert [rounded_up(one) for one in (0.1, 1.0, 0.3 - 0.2, 36.0, math.inf, 0.0)] == [
        "0.1",
        "1",
        "0.1",
        "36",
        "inf",
        "0",
    ]
    assert rounded_up(0.12341) == "0.1235"
    promise = RecordGuarantee(
        epsilon=1.00041, delta=1.0001e-5, account="a", mode="certified", is_secure=True, bounds_are_public=True
    )
    assert "epsilon 1.001 at delta 1.01e-05" in str(promise)
    # The broken twin: the nearest number is a smaller one.
    assert float(f"{0.12341:.4g}") < 0.12341


def test_guarantees_are_shown_in_sentences_and_in_notebooks_escaped():
    promise = compose((AGE, CITY), is_secure=True, not_protected=("<script>",))
    assert "are protected against everyone who sees what was released" in str(promise)
    assert "It does not protect the active party's labels" in str(promise)
    shown = promise._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert shown.count("<tr>") == 3


def test_what_no_noise_hides_is_not_said_to_be_protected():
    """At `MOST_EPSILON` between neighbouring values a column still hides them, and beyond it not, whatever the rest."""
    at_most, beyond = replace(AGE, epsilon=MOST_EPSILON, domain_loss=4e3), replace(AGE, epsilon=36.1, domain_loss=4e3)
    empty = replace(AGE, missing_epsilon=36.1)
    assert [one.hides for one in (AGE, CITY, at_most, beyond, empty)] == [True, True, True, False, False]
    nothing = "Nothing is protected in 1 of {} released columns: their neighbouring values lose over 36"
    alone, among = compose((beyond,), is_secure=True), compose((AGE, beyond), is_secure=True)
    assert alone.protected == f"{nothing.format(1)}, which no noise hides."
    assert among.protected.startswith(nothing.format(2))
    assert "The values of the other released columns are protected" in among.protected
    assert not alone.certified
    assert not among.certified
    kept = compose((AGE, at_most), is_secure=True)
    assert kept.protected.startswith("The values of the released columns are protected")
    assert kept.certified
