"""The `agreed` section: every key is a term of the message, and what is left out is not compared."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from opboost.privacy.laws import Law
from parties.config.agreed_terms import AgreedSection
from protocols.messages.vertical import Terms


def test_an_empty_section_compares_nothing() -> None:
    assert AgreedSection().terms() == Terms()


def test_every_key_reaches_the_message_under_its_name() -> None:
    given: dict[str, Any] = {
        "objective": "binary:logistic",
        "tests": 0,
        "columns": 4,
        "mechanism": "local",
        "law": next(iter(Law)).value,
        "epsilon": 0.5,
        "total_epsilon": 2.0,
        "share_thresholds": False,
    }
    assert set(given) == set(AgreedSection.model_fields)
    found = AgreedSection(**given).terms()
    assert {name: getattr(found, name) for name in given} == given


@pytest.mark.parametrize(
    "key",
    [
        {"tests": -1},
        {"tests": 2**31},
        {"columns": -1},
        {"columns": 2**63},
        {"epsilon": 0},
        {"epsilon": math.nan},
        {"total_epsilon": math.inf},
        {"law": "cauchy"},
        {"theta": 1},
    ],
)
def test_what_is_no_term_is_refused(key: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AgreedSection(**key)
