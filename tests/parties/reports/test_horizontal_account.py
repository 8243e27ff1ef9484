"""The account of a horizontal model as a section: its numbers are the accounts' own."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from opboost import DPBoostClassifier
from opboost.privacy.accounting import by_gaussian, by_renyi
from opboost.privacy.gaussian import gaussian_epsilon
from opboost.privacy.record_guarantee import RecordGuarantee
from opboost.privacy.releases import (
    FilteredRelease,
    GaussianRelease,
    LaplaceRelease,
    PureRelease,
    SampledGaussianRelease,
)
from parties.reports.horizontal_account import SHOWN_DELTAS, account_facts, account_section, promise_blocks
from parties.reports.page import FigureGrid
from parties.reports.plain import plain

PROMISE = RecordGuarantee(
    epsilon=1.0, delta=1e-6, account="Renyi", mode="certified", is_secure=True, bounds_are_public=True
)


def cells(blocks: tuple[object, ...]) -> dict[str, str]:
    return {row[0]: row[1] for block in blocks if isinstance(block, FigureGrid) for row in block.rows}


def test_the_curves_are_those_of_the_accounts() -> None:
    releases = [GaussianRelease(mu=0.2, count=10), PureRelease(epsilon=0.05)]
    facts = account_facts(PROMISE, releases)
    assert set(facts.profiles) == {"exact Gaussian", "Renyi", "loss distribution (PLD)"}
    for name, account in (("exact Gaussian", by_gaussian), ("Renyi", by_renyi)):
        assert facts.profiles[name] == tuple((delta, account(releases, delta)) for delta in SHOWN_DELTAS)
    for profile in facts.profiles.values():
        assert np.all(np.diff([epsilon for _, epsilon in profile]) >= 0)
    assert [(one.kind, one.count, one.noise) for one in facts.queries] == [
        ("Gaussian", 10, "sigma 5 sensitivities"),
        ("pure release", 1, "epsilon 0.05"),
    ]


def test_accounts_that_do_not_know_a_release_are_left_out() -> None:
    facts = account_facts(PROMISE, [FilteredRelease(order=8, rho=0.3)])
    assert set(facts.profiles) == {"Renyi"}
    assert facts.renyi == ((8, pytest.approx(0.3)),)
    mixed = account_facts(PROMISE, [SampledGaussianRelease(rate=0.1, mu=0.5), LaplaceRelease(l1=2, scale=8.0)])
    assert "pure composition" not in mixed.profiles
    assert mixed.queries[1].noise == "scale 4 sensitivities"


def test_an_estimators_guarantee_makes_a_section() -> None:
    draw = np.random.default_rng(0)
    features = draw.random((200, 2))
    model = DPBoostClassifier(epsilon=2.0, bounds=([0, 0], [1, 1]), n_estimators=2, max_depth=2, random_state=0)
    promise = model.fit(features, (features[:, 0] > 0.5).astype(int)).guarantee_
    section = account_section(account_facts(promise))
    found = cells(section.blocks)
    assert math.isclose(float(found["epsilon"]), promise.epsilon, rel_tol=1e-3)
    assert found["certified or paper"].startswith("not certified")
    assert plain(account_facts(promise))["guarantee"]["epsilon"] == promise.epsilon


def test_a_page_tells_what_a_publication_claims() -> None:
    promise = RecordGuarantee(
        epsilon=2.0,
        delta=0,
        account="pure composition",
        mode="paper",
        is_secure=True,
        bounds_are_public=True,
        claimed_epsilon=1.0,
    )
    found = cells(account_section(account_facts(promise, [PureRelease(epsilon=2.0)])).blocks)
    assert found["epsilon that the publication claims"] == "1"
    assert found["certified or paper"] == "not certified (paper mode)"


@pytest.mark.parametrize("change", [{"epsilon": 36.1}, {"delta": 0.02}])
def test_a_promise_that_hides_no_record_is_not_certified_for_that_reason(change: dict[str, float]) -> None:
    found = cells(account_section(account_facts(replace(PROMISE, **change))).blocks)
    assert found["certified or paper"] == "not certified (noise that hides no record)"


def test_odds_beyond_epsilon_come_up_more_often_than_delta_and_nobody_is_told_otherwise() -> None:
    """Of one Gaussian release, whose loss is normal: what holds for sure is that nobody guesses better than told."""
    mu, delta = 0.25, 1e-6
    epsilon = gaussian_epsilon(mu, delta)
    thresholds = np.linspace(-4, 4, 801)
    told, guessed = delta + math.exp(epsilon) * ndtr(-thresholds), ndtr(mu - thresholds)
    assert (guessed <= told + 1e-12).all()
    assert ndtr(-(epsilon - mu**2 / 2) / mu) > 5 * delta
    promise = RecordGuarantee(
        epsilon=epsilon, delta=delta, account="exact", mode="certified", is_secure=True, bounds_are_public=True
    )
    text = " ".join(block.text for block in promise_blocks(promise))
    assert "no better than somebody who is told it outright with a chance of one in 1,000,000, and with odds" in text
    assert "but for" not in text


def test_no_epsilon_and_no_delta_is_shown_smaller_than_it_is() -> None:
    """Rounded to the nearest, an epsilon of 1.00004 was shown as 1, and a delta of 1.2345e-6 as 1.23e-06."""
    promise = replace(PROMISE, epsilon=1.00004, delta=1.2345e-6)
    releases = [GaussianRelease(mu=0.2, count=10), PureRelease(epsilon=0.100004)]
    facts = account_facts(promise, releases)
    grids = {one.caption: one for one in account_section(facts).blocks if isinstance(one, FigureGrid)}
    assert dict(grids["The promise"].rows)["delta"] == "1.24e-06"
    assert ("pure release", "1", "epsilon 0.1001") in grids["What was asked of the records"].rows
    for row, (_, rho), (_, epsilon) in zip(grids["RDP, by order"].rows, facts.renyi, facts.converted, strict=True):
        assert float(row[1]) >= rho * (1 - 1e-8)
        assert float(row[2]) >= epsilon * (1 - 1e-8)
    for k, profile in enumerate(facts.profiles.values()):
        for row, (delta, epsilon) in zip(grids["Epsilon at delta, by account"].rows, profile, strict=True):
            assert float(row[0]) >= delta * (1 - 1e-8)
            assert float(row[1 + k]) >= epsilon * (1 - 1e-8)
