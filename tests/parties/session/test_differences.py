"""The comparison of two greetings: exactly what differs is named, and what is not comparable is not compared."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.errors import Disagreement
from parties.session.differences import check_agreement, differences, set_difference
from protocols.messages.vertical import Hello, Role, Task, Terms

BANK = Hello(
    role=Role.ACTIVE, party="bank", run_id="r", task=Task.TRAIN, n_rows=14, id_point=bytes(33), plan=Terms(tests=1)
)
SHOP = BANK.model_copy(update={"role": Role.PASSIVE, "party": "shop", "plan": Terms()})

_DIFFERENCES: dict[str, tuple[object, str]] = {
    "party": ("mall", "it calls itself 'mall', not 'shop'"),
    "role": (Role.ACTIVE, "both sides are active"),
    "task": (Task.PREDICT, "it came to predict, this party to train"),
    "run_id": ("q", "its run is 'q', this party's is 'r'"),
    "n_rows": (15, "the sets of ids differ: it has 15 records, this party 14; both need the same ids"),
}


def test_who_looks_at_a_party_that_serves_compares_neither_records_nor_terms_of_training() -> None:
    looks = BANK.model_copy(update={"task": Task.CHECK, "agreed": Terms(columns=4)})
    serves = SHOP.model_copy(update={"task": Task.PREDICT, "id_point": None, "n_rows": 0, "comes_again": True})
    assert differences(looks, serves, "shop") == differences(serves, looks, "bank") == []
    assert differences(looks, serves.model_copy(update={"run_id": "other"}), "shop") != []


@settings(max_examples=32, deadline=None)
@given(fields=st.sets(st.sampled_from(sorted(_DIFFERENCES))))
def test_exactly_the_differences_are_named(fields: set[str]) -> None:
    theirs = SHOP.model_copy(update={field: _DIFFERENCES[field][0] for field in fields})
    if not fields:
        check_agreement(BANK, theirs, "shop")
        return
    with pytest.raises(Disagreement, match=r"^shop and this party do not agree: .* Nothing was released$") as refusal:
        check_agreement(BANK, theirs, "shop")
    assert {field for field, (_, words) in _DIFFERENCES.items() if words in str(refusal.value)} == fields


def test_shares_of_different_trainings_of_a_run_do_not_predict_together() -> None:
    bank, shop = (one.model_copy(update={"task": Task.PREDICT, "training": "a" * 64}) for one in (BANK, SHOP))
    assert differences(bank, shop, "shop") == []
    for before in (shop.model_copy(update={"training": None}), SHOP.model_copy(update={"task": Task.PREDICT})):
        assert differences(bank, before, "shop") == differences(before, bank, "bank") == []
    with pytest.raises(Disagreement, match="share of the model is of another training of this run than this party's"):
        check_agreement(bank, shop.model_copy(update={"training": "b" * 64}), "shop")


def test_aligned_records_are_not_compared_with_others() -> None:
    for one, other in (
        (BANK, SHOP.model_copy(update={"id_point": None})),
        (BANK.model_copy(update={"id_point": None}), SHOP),
    ):
        with pytest.raises(Disagreement, match="the records of one side are aligned, those of the other side are not"):
            check_agreement(one, other, "shop")


def test_other_ids_are_told_by_their_numbers_alone() -> None:
    theirs = SHOP.model_copy(update={"n_rows": 15})
    assert differences(BANK, theirs, "shop") == [set_difference(BANK, theirs)]


@pytest.mark.parametrize(
    ("agreed", "planned", "is_kept"),
    [
        (Terms(epsilon=0.5), Terms(epsilon=0.5 * (1 + 1e-12)), True),
        (Terms(epsilon=0.5), Terms(epsilon=0.51), False),
        (Terms(epsilon=0.5), Terms(), False),
        (Terms(columns=4), Terms(columns=4), True),
        (Terms(columns=4), Terms(columns=5), False),
        (Terms(share_thresholds=False), Terms(share_thresholds=True), False),
        (Terms(), Terms(columns=5, epsilon=9.0, mechanism="local"), True),
    ],
)
def test_terms_that_were_agreed_on_are_compared_with_the_plan_on_both_sides(
    agreed: Terms, planned: Terms, is_kept: bool
) -> None:
    mine = BANK.model_copy(update={"agreed": agreed})
    theirs = SHOP.model_copy(update={"plan": planned})
    assert (differences(mine, theirs, "shop") == []) is is_kept
    assert (differences(theirs, mine, "bank") == []) is is_kept


@pytest.mark.parametrize(("most", "is_kept"), [(None, True), (3, True), (4, True), (2, False)])
def test_of_split_tests_a_most_is_agreed_on(most: int | None, is_kept: bool) -> None:
    mine = BANK.model_copy(update={"plan": Terms(tests=3)})
    theirs = SHOP.model_copy(update={"agreed": Terms(tests=most)})
    assert (differences(mine, theirs, "shop") == []) is is_kept


def test_a_number_of_split_tests_must_be_known_to_train() -> None:
    unknown = BANK.model_copy(update={"plan": Terms()})
    assert differences(unknown, SHOP, "shop") == [
        "number of split tests: this party plans nothing where a number must be agreed on"
    ]
    predicts = [hello.model_copy(update={"task": Task.PREDICT}) for hello in (unknown, SHOP)]
    assert differences(*predicts, "shop") == []


@pytest.mark.parametrize(("labels", "is_kept"), [((True, False), True), ((True, True), False), ((False, False), False)])
def test_exactly_one_side_has_labels(labels: tuple[bool, bool], is_kept: bool) -> None:
    mine, theirs = (
        hello.model_copy(update={"has_label": label}) for hello, label in zip((BANK, SHOP), labels, strict=True)
    )
    assert (differences(mine, theirs, "shop") == []) is is_kept


def test_how_records_were_aligned_is_shown_on_one_line_and_in_short() -> None:
    theirs = SHOP.model_copy(update={"alignment": "psi\n" + "x" * 1000})
    (found,) = differences(BANK, theirs, "shop")
    assert found.startswith("its records are aligned so: ")
    assert "\n" not in found
    assert len(found) < 400


@pytest.mark.parametrize(("agreed", "n_offered", "is_refused"), [(None, 1000, False), (None, 1001, True), (3, 4, True)])
def test_more_columns_than_agreed_or_than_the_cap_are_refused_on_both_sides(
    agreed: int | None, n_offered: int, is_refused: bool
) -> None:
    bank = BANK.model_copy(update={"agreed": Terms(columns=agreed)})
    # A shop that says another number than it offers gains nothing.
    shop = SHOP.model_copy(update={"names": tuple(map(str, range(n_offered))), "plan": Terms(columns=agreed)})
    for found in (differences(bank, shop, "shop"), differences(shop, bank, "bank")):
        told = [sentence for sentence in found if f"offers {n_offered} columns of ranks where at most" in sentence]
        assert len(told) == len(found) == is_refused
    if agreed is None:
        assert differences(BANK, shop.model_copy(update={"plan": Terms(columns=3)}), "shop") == differences(
            bank, shop, "shop"
        )
