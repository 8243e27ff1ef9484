"""Keys of records: what two files write in two ways is one key, and whatever is not one is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.errors import TableError
from parties.tables.record_keys import first_names, normal_form, places_by_key, read_keys, rules_in_words

PATH = Path("customers.csv")


@pytest.mark.parametrize(
    ("rule", "same"),
    [
        ("case", ["Straße", "STRASSE", "strasse"]),
        ("spaces", ["AB 12 3", "AB123", " A\u00a0B\t123 "]),
        ("email", ["Anna.Ng@Example.org", " anna.ng@example.org ", "ANNA.NG@EXAMPLE.ORG."]),
        (
            "phone 49",
            [
                "030 123 45-6",
                "+49 30 123456",
                "0049 (0)30/123456",
                "(+49) 30 123456",
                "\uff0b49 30 123456",
                "30 123456",
            ],
        ),
        ("phone 39", ["06 6982", "+39 06 6982", "0039 06 6982"]),
        ("phone 49", ["+44 20 7946 0000", "0044 20 79460000"]),
    ],
)
def test_texts_that_mean_the_same_have_one_normal_form(rule: str, same: list[str]) -> None:
    assert len({normal_form(text, [rule]) for text in same}) == 1
    # Without the rule they are several.
    assert len({normal_form(text, []) for text in same}) > 1


def test_what_is_no_address_and_no_number_is_no_key() -> None:
    assert [normal_form(text, ["email"]) for text in ("none", "@", "a@", "a@b@c")] == [""] * 4
    assert [normal_form(text, ["phone 49"]) for text in ("none", "-", "000", "+49", "0049 0")] == [""] * 5
    numbers = ["030 1", "040 1", "+44 30 1", "+1 30 1"]
    assert len({normal_form(text, ["phone 49"]) for text in numbers}) == 4


@given(st.text(), st.lists(st.sampled_from(["case", "spaces", "email", "phone 49"]), unique=True))
def test_rules_in_any_order_have_one_form_without_white_space_around_it(text: str, rules: list[str]) -> None:
    found = normal_form(text, rules)
    assert found == normal_form(text, rules[::-1])
    assert "spaces" not in rules or not any(letter.isspace() for letter in found)


def test_a_key_with_an_empty_part_is_none_and_parts_do_not_run_together() -> None:
    frame = pd.DataFrame({"name": ["Ng", "N", None, "Ng"], "born": ["1", "g1", "1", ""], "n": [7, 8, 9, 10]})
    (both, number) = read_keys(frame, [{"name": ("case",), "born": ()}, {"n": ()}], PATH, duplicates="refuse")
    assert both.tolist() == ["2:ng,1:1,", "1:n,2:g1,", "", ""]
    assert number.tolist() == ["7", "8", "9", "10"]
    assert first_names([both, number]).tolist() == ["1 2:ng,1:1,", "1 1:n,2:g1,", "2 9", "2 10"]
    assert places_by_key([both, number])["2 7"] == 0
    assert first_names([np.array(["", "x"], object)]).tolist() == ["0 0", "1 x"]


def test_rows_that_normalisation_makes_the_same_are_refused_or_have_no_such_key() -> None:
    frame = pd.DataFrame({"mail": ["Ann@x.de", "ann@X.de", "bo@x.de"]})
    keys = [{"mail": ("email",)}]
    with pytest.raises(TableError, match=r"key 1 \(mail\) is the same in 2 of 3 rows.*Nothing was sent") as refused:
        read_keys(frame, keys, PATH, duplicates="refuse")
    assert "ann" not in str(refused.value).lower()
    for word in ("drop", "first", "last"):
        assert read_keys(frame, keys, PATH, duplicates=word)[0].tolist() == ["", "", "bo@x.de"]


def test_rules_in_words_name_no_column() -> None:
    keys = [{"number": ("spaces",)}, {"name": ("spaces", "case"), "born": ()}]
    assert rules_in_words(keys) == "spaces; case+spaces, as is"
