"""Codes that a passive party shares: what they tell, what the other side makes of them, and what it refuses."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost import rng
from opboost.columns import OwnColumn
from opboost.denoise.channel import MOST_CELLS, ColumnRelease
from opboost.desensitize import ColumnMechanism
from opboost.fitting.noise_correction import LEAST_ROWS
from opboost.fitting.noised_table import NoiseChoice
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.guarantee import compose
from opboost.ranking import Ranking, RankTable
from opboost.schema import ColumnSchema, Kind, Missing
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic
from parties.runs.joint_model import JointModel
from parties.vertical import shared_codes
from parties.vertical.party_a import train_jointly
from parties.vertical.party_b import train
from parties.vertical.release_job import PassiveJob
from parties.vertical.release_offer import OfferedRanks, ReleasedTable, make_offer
from parties.vertical.shared_codes import MOST_HELD, releases_of
from parties.vertical.simulation import drawn_from, simulate
from parties.vertical.training_job import ActiveJob
from protocols.errors import UnexpectedMessage
from protocols.messages.vertical import Offer
from protocols.transport.codec import decode, encode

NUMBER = ColumnSchema(name="n", lower=0, upper=10)
EMPTY = ColumnSchema(name="e", lower=0, upper=10, missing=Missing.CATEGORY)
KINDS = ColumnSchema(name="k", kind=Kind.UNORDERED, categories=("x", "y", "z"))
GAPPY = replace(KINDS, name="g", missing=Missing.CATEGORY)


def mechanisms(**settings: Any) -> tuple[ColumnMechanism, ...]:
    chosen = MechanismSettings(**{"epsilon": 0.1, "domain_size": 50, **settings})
    return tuple(ColumnMechanism(schema, chosen) for schema in (NUMBER, EMPTY, KINDS, GAPPY))


def tables(columns: tuple[ColumnMechanism, ...]) -> list[OfferedRanks]:
    """Some codes of every column, and indicators of two codes."""
    found = []
    for number, column in enumerate(columns):
        name, has_missing = column.schema.name, column.missingness is not None
        is_unordered = column.schema.kind is Kind.UNORDERED
        codes = np.array([0, 1] if is_unordered else [1, 7, 50])
        for category in range(3) if is_unordered else (None,):
            ranking = Ranking(name, category, RankTable(codes), has_missing, None)
            found.append(OfferedRanks(ReleasedTable(columns, ()), number, ranking, "0" * 64))
    return found


def offer_of(columns: tuple[ColumnMechanism, ...], *, share_codes: bool = True) -> Offer:
    guarantee = compose(tuple(c.guarantee() for c in columns), is_secure=True, bounds_are_public=True)
    offer = make_offer(columns, tables(columns), guarantee, opaque_names=True, share_codes=share_codes)
    arrived = decode(encode(offer))
    assert isinstance(arrived, Offer)
    return arrived


def read(offer: Offer, columns: tuple[ColumnMechanism, ...]) -> tuple[ColumnRelease | None, ...]:
    guarantee = compose(tuple(c.guarantee() for c in columns), is_secure=True, bounds_are_public=True)
    return releases_of(offer, guarantee, peer="shop")


@pytest.mark.parametrize("mechanism", ["global", "local", "adj"])
@pytest.mark.parametrize("law", ["clamped", "exponential", "calibrated", "bounded_laplace"])
def test_the_other_side_knows_the_very_mechanism_and_codes(mechanism: str, law: Any) -> None:
    columns = mechanisms(mechanism=mechanism, law=law, theta=10, alpha=2.0, category_epsilon=1.5)
    found = read(offer_of(columns), columns)
    made = [column for column in columns for _ in range(3 if column.schema.kind is Kind.UNORDERED else 1)]
    for release, column in zip(found, made, strict=True):
        assert release is not None
        assert release.mechanism == column.value
        assert release.missingness == column.missingness
        expected = [0, 1] if column.schema.kind is Kind.UNORDERED else [0, 6, 49]
        assert release.positions.tolist() == expected
    assert [release.category for release in found if release] == [None, None, 0, 1, 2, 0, 1, 2]


def test_nothing_is_shared_where_it_is_refused_or_where_codes_are_exact() -> None:
    refused, exact = mechanisms(), mechanisms(epsilon=math.inf)
    for offer in (offer_of(refused, share_codes=False), offer_of(exact)):
        assert all(column.codes is None for column in offer.columns)
    assert read(offer_of(exact), exact) == (None,) * 8


def changed(offer: Offer, place: int, **fields: Any) -> Offer:
    columns = list(offer.columns)
    columns[place] = columns[place].model_copy(update=fields)
    return offer.model_copy(update={"columns": tuple(columns)})


@pytest.mark.parametrize(
    ("place", "fields"),
    [
        (0, {"codes": b""}),
        (0, {"codes": b"\x82\0\0\0\0\0"}),
        (0, {"codes": b"\x82\0\0\0\0\0\x40\0"}),
        (0, {"codes": b"\x80\0\0\0\0\0\x40"}),
        (0, {"codes": b"\x82\0\0\0\0\0\x20"}),
        (0, {"n_ranks": 4}),
        (0, {"has_missing": True}),
        (2, {"codes": b"\xe0"}),
    ],
)
def test_codes_that_do_not_fit_are_refused(place: int, fields: dict[str, Any]) -> None:
    """Too few bytes or too many, another number of codes than ranks, a code outside the domain, missing rows."""
    columns = mechanisms()
    with pytest.raises(UnexpectedMessage, match="shares codes that cannot be used"):
        read(changed(offer_of(columns), place, **fields), columns)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"epsilon": math.nan, "domain_size": 50.0},
        {"epsilon": -1.0, "domain_size": 50.0},
        {"epsilon": 0.1, "domain_size": 50.5},
        {"epsilon": 0.1, "domain_size": math.inf},
        {"epsilon": 0.1, "domain_size": 1e300},
        {"epsilon": 0.1, "domain_size": 50.0, "theta": 0.0},
        {"epsilon": 0.1, "domain_size": 50.0, "theta": math.nan},
    ],
)
@pytest.mark.parametrize("mechanism", ["global", "adj", "randomised_response", "none such"])
def test_settings_that_are_no_mechanism_are_refused(mechanism: str, parameters: dict[str, float]) -> None:
    columns = mechanisms()[:1]
    offer, promise = offer_of(columns), columns[0].guarantee()
    guarantee = compose((promise,), is_secure=True, bounds_are_public=True)
    hostile = replace(promise, mechanism=mechanism)
    object.__setattr__(hostile, "parameters", parameters)
    with pytest.raises(UnexpectedMessage, match="cannot be used"):
        releases_of(offer, replace(guarantee, columns=(hostile,)), peer="shop")


def test_guarantees_of_more_or_fewer_columns_are_refused() -> None:
    columns = mechanisms()
    for some in (columns[:3], (*columns, *columns[:1])):
        with pytest.raises(UnexpectedMessage, match="guarantee's"):
            read(offer_of(columns), some)


def test_mechanisms_that_would_take_much_memory_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """125,000 cells of one point each: megabytes for every column; all limits are an eighth of what they are."""
    monkeypatch.setattr(shared_codes, "MOST_HELD", MOST_HELD >> 3)
    columns = (ColumnMechanism(NUMBER, MechanismSettings(mechanism="adj", theta=2, domain_size=50)),) * 300
    offer, promise = offer_of(columns[:1]), columns[0].guarantee()
    hostile = replace(promise, parameters={"epsilon": 0.1, "domain_size": 125_000.0, "theta": 1.0, "alpha": 1.0})
    guarantee = compose((promise,), is_secure=True, bounds_are_public=True)
    bits = np.zeros(15_625, np.uint8)
    bits[0] = 0xE0
    one = offer.columns[0].model_copy(update={"codes": bits.tobytes()})
    tracemalloc.start()
    found = releases_of(
        Offer(columns=(one,) * 10, guarantee={}), replace(guarantee, columns=(hostile,) * 10), peer="shop"
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(release is not None for release in found) == (MOST_HELD >> 3) // 125_001
    assert peak < 1 << 27


def test_no_more_columns_are_corrected_than_a_mixture_has_memory_for() -> None:
    """A thousand columns of 500 ranks each are a megabyte on the wire; their mixture would need gigabytes."""
    columns = (ColumnMechanism(NUMBER, MechanismSettings(domain_size=1000)),)
    one = offer_of(columns).columns[0].model_copy(update={"codes": bytes([255] * 63 + [0] * 62), "n_ranks": 504})
    found = read(Offer(columns=(one,) * 1000, guarantee={}), columns * 1000)
    assert sum(release is not None for release in found) == MOST_HELD // MOST_CELLS**2 == 512


@pytest.mark.parametrize("n_categories", [3, 255])
def test_more_categories_than_can_be_drawn_back_are_trained_on_as_they_are(n_categories: int) -> None:
    """With labels of one class, which common records may all have."""
    names = tuple(map(str, range(n_categories)))
    columns = (ColumnMechanism(replace(GAPPY, categories=names), MechanismSettings(epsilon=1.0, category_epsilon=1.0)),)
    kinds = pd.DataFrame({"g": np.resize(names, LEAST_ROWS)})
    passive = PassiveJob(party="shop", run_id="r", id_digest="d", features=kinds, mechanisms=columns, rng=rng.seeded(1))
    own = OwnColumn("own", np.arange(LEAST_ROWS, dtype=float), is_categorical=False)
    active = ActiveJob(
        party="bank",
        run_id="r",
        id_digest="d",
        own=(own,),
        labels=np.zeros(LEAST_ROWS),
        weights=np.ones(LEAST_ROWS),
        loss=Logistic(),
        parameters=BoostingParameters(n_estimators=2, max_depth=2),
        seed=1,
    )
    passive = replace(passive, release=drawn_from(passive.rng))
    model = simulate(
        lambda channels: train_jointly(active, channels), {"shop": lambda channel: train(passive, channel)}, name="bank"
    )
    assert (model.choice is not None) == (n_categories <= 254)


def test_a_column_of_which_every_released_row_is_missing_is_trained_on_as_it_is() -> None:
    columns = mechanisms()[1:2]
    empty = offer_of(columns).columns[0].model_copy(update={"n_ranks": 0, "codes": bytes(7)})
    assert read(Offer(columns=(empty,), guarantee={}), columns) == (None,)


def test_more_codes_than_a_message_may_hold_are_refused() -> None:
    columns = mechanisms()[:1]
    offer = offer_of(columns)
    many = offer.columns[0].model_copy(update={"codes": bytes(125_000)})
    with pytest.raises(UnexpectedMessage, match="bytes of codes"):
        read(offer.model_copy(update={"columns": (many,) * 200}), columns)


N_ROWS = 1500
TASTES = {"cat": 0, "dog": 1, "cow": 2}


def joint(*, share_codes: bool = True, correct_noise: bool = True, epsilon: float = 0.1) -> JointModel:
    """One party with a number, an often empty number and a column of categories, another one with a number."""
    draw = np.random.default_rng(8)
    own, spent, debt, age = draw.normal(size=N_ROWS), *draw.uniform(0, 10, (3, N_ROWS))
    kinds = draw.choice(list(TASTES), N_ROWS)
    score = own + (spent - 5) / 2 + 2.0 * (kinds == "cow") + (age - 5) / 3 + np.where(debt < 2, 1.0, 0.0)
    labels = (score + draw.logistic(size=N_ROWS) > 0.5).astype(float)
    tables = {
        "shop": pd.DataFrame({"n": spent, "e": np.where(debt < 2, np.nan, debt), "g": kinds}),
        "club": pd.DataFrame({"n": age}),
    }
    settings = MechanismSettings(epsilon=epsilon, domain_size=50)
    gappy = replace(GAPPY, categories=tuple(TASTES))
    columns = {"shop": (NUMBER, EMPTY, gappy), "club": (NUMBER,)}
    passive = {
        party: PassiveJob(
            party=party,
            run_id="r",
            id_digest="",
            features=tables[party],
            mechanisms=tuple(ColumnMechanism(schema, settings) for schema in columns[party]),
            rng=rng.seeded(3),
            release=drawn_from(rng.seeded(3)),
            share_codes=share_codes,
        )
        for party in columns
    }
    active = ActiveJob(
        party="bank",
        run_id="r",
        id_digest="",
        own=(OwnColumn("own", own),),
        labels=labels,
        weights=np.ones(N_ROWS),
        loss=Logistic(),
        parameters=BoostingParameters(n_estimators=12, max_depth=3),
        correct_noise=correct_noise,
        seed=1,
    )
    return simulate(
        lambda channels: train_jointly(active, channels),
        {party: lambda channel, job=job: train(job, channel) for party, job in passive.items()},  # type: ignore[misc]
        name="bank",
    )


def same(one: JointModel, other: JointModel) -> bool:
    return len(one.ensemble.trees) == len(other.ensemble.trees) and all(
        np.array_equal(a.values, b.values) and np.array_equal(a.columns, b.columns)
        for a, b in zip(one.ensemble.trees, other.ensemble.trees, strict=True)
    )


def test_several_parties_columns_are_learned_through_their_noise() -> None:
    """Numbers, empty cells and categories; without codes, or with noise left as it is, the model is the plain one."""
    corrected, plain = joint(), joint(correct_noise=False)
    assert corrected.choice in (NoiseChoice.CORRECTED, NoiseChoice.CORRECTED_AND_PLAIN)
    assert {feature.owner for feature in corrected.ensemble.features} == {None, "shop", "club"}
    assert plain.choice is None
    assert not same(corrected, plain)
    without_codes = joint(share_codes=False)
    assert without_codes.choice is None
    assert same(without_codes, plain)


def test_without_noise_the_joint_model_is_the_plain_one() -> None:
    exact = joint(epsilon=math.inf)
    assert same(exact, joint(epsilon=math.inf, correct_noise=False))
    assert exact.choice is None
