"""The federated framework among owners: limits of what may be asked, and noise in shares where it has an account."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opboost.errors import ParameterError
from opboost.horizontal.federated.owners import check_noise_in_shares
from opboost.horizontal.noise.leaf_noise import LeafNoise
from opboost.rng import seeded
from tests.support.federated_workers import recipe

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ({}, (True, 0, 0)),
        ({"split_candidates": "ih"}, (True, 1, 2)),
        ({"split_method": "hist"}, (False, 2, 0)),
        ({"split_method": "hist", "split_candidates": "ih"}, (False, 2, 6)),
        ({"split_method": "pr", "max_depth": 3}, (False, 4, 0)),
        ({"split_method": "hist", "interaction": "cyclical"}, (False, 1, 0)),
        ({"split_method": "hist", "interaction": "cyclical", "columns_per_tree": 2}, (False, 2, 0)),
    ],
)
def test_a_worker_knows_how_many_histograms_and_placements_may_be_asked_for(
    settings: dict[str, Any], rules: tuple[bool, int, int]
) -> None:
    found = recipe(**settings).tree_rules
    assert (found.is_complete, found.n_histogram_nodes, found.n_placements) == rules
    assert found.n_trees == recipe(**settings).n_trees == 6
    assert recipe(**settings).public_rule(seeded(0)) is None


@pytest.mark.parametrize(
    "settings", [{"split_method": "hist"}, {"split_method": "pr"}, {"split_candidates": "ih"}], ids=str
)
def test_noise_in_shares_is_refused_where_it_has_no_account(settings: dict[str, Any]) -> None:
    check_noise_in_shares(recipe().choices)
    with pytest.raises(ParameterError, match="of which owners have no account"):
        check_noise_in_shares(recipe(**settings).choices)


def test_shares_for_other_contributions_than_are_made_are_refused() -> None:
    of = recipe(n_honest=2)
    assert isinstance(of.noise, LeafNoise)
    clipping = replace(of.noise.clipping, max_grad=0.5 * of.noise.clipping.max_grad)
    with pytest.raises(ParameterError, match="for other contributions"):
        replace(of, noise=replace(of.noise, clipping=clipping))
