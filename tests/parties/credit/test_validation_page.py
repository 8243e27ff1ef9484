"""The page of a credit validation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opboost.columns import OwnColumn
from opboost.credit.evidence import own_characteristic
from opboost.credit.scorecard import Scorecard
from parties.credit.validation import Validation
from parties.credit.validation_page import scorecard_document, validation_page
from parties.reports.page import to_markdown


@pytest.fixture(scope="module")
def found() -> Validation:
    rng = np.random.default_rng(0)
    ages = rng.uniform(18, 90, 2000)
    labels = (rng.random(2000) < ages / 120).astype(np.float64)
    card = Scorecard.fit([own_characteristic(OwnColumn("age", ages), labels)], labels)
    drifts = {"scores": 0.01, "age": 0.3}
    left_out = (own_characteristic(OwnColumn("colour", rng.permutation(ages)), labels),)
    return Validation(run_id="spring", card=card, left_out=left_out, card_gini=0.4, model=None, drifts=drifts)


def test_every_bin_has_its_points(found: Validation) -> None:
    text, (column,) = to_markdown(validation_page(found)), scorecard_document(found)["characteristics"]
    for one in column["bins"]:
        assert f"| {one['bin']} |" in text
        assert f"| {one['points']:.1f} |" in text
    assert sum(one["share"] for one in column["bins"]) == pytest.approx(1)


def test_drift_left_out_columns_and_the_price_are_told(found: Validation) -> None:
    text = to_markdown(validation_page(found))
    assert "| age | 0.300 | shifted |" in text
    (value,) = scorecard_document(found)["left_out"].values()
    assert f"| colour | own | {value:.3f} | not needed | left out |" in text
    assert "costs no budget" in text


@pytest.mark.parametrize(("share", "is_told"), [(1.0, False), (0.1, True)])
def test_corrected_values_of_few_events_are_warned_of(found: Validation, share: float, is_told: bool) -> None:
    (own,) = found.card.characteristics
    assert "corrected values are coarse" not in to_markdown(validation_page(found))
    released = replace(own, owner="shop", is_corrected=True, events=share * own.events)
    of_kept = replace(found, card=replace(found.card, characteristics=(released,)))
    # It was not told where the correction itself had left the column out.
    for one in (of_kept, replace(found, left_out=(released,))):
        page = to_markdown(validation_page(one))
        assert ("Below 500, corrected values are coarse" in page) == is_told
        assert "| age | shop |" in page
    assert scorecard_document(replace(found, left_out=(released,)))["left_out"].keys() == {"shop: age"}
