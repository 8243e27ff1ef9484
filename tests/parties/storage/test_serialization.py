"""Mechanisms, routers and guarantees as plain values: what is written reads back as it was, and nothing else."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.desensitize import ColumnMechanism
from opboost.errors import OpBoostError
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.guarantee import Guarantee, compose
from opboost.privacy.laws import Law
from opboost.routing import Router, SplitTests
from opboost.schema import ColumnSchema, Kind, Missing, Outside
from opboost.table_format import TableFormat
from parties.errors import ConfigError
from parties.storage.serialization import (
    guarantee_from_dict,
    mechanism_from_dict,
    mechanism_to_dict,
    router_from_dict,
    router_to_dict,
)

_finite = st.floats(0.01, 5)


def mechanism_settings(epsilons: st.SearchStrategy[float]) -> st.SearchStrategy[MechanismSettings]:
    return st.builds(
        MechanismSettings,
        mechanism=st.sampled_from(("global", "local", "adj")),
        epsilon=epsilons,
        law=st.sampled_from(Law),
        theta=st.none() | st.integers(2, 20),
        alpha=st.floats(0.1, 3),
        domain_size=st.integers(20, 40),
        category_epsilon=st.none() | epsilons,
    )


def mechanism_of(schema: ColumnSchema, own: MechanismSettings) -> ColumnMechanism:
    """A Local-Map's cells may be too narrow for so few categories."""
    if own.mechanism == "local" and schema.kind is Kind.ORDERED:
        own = replace(own, mechanism="global")
    return ColumnMechanism(schema, own)


_bounds = st.floats(-1e6, 1e6).map(lambda bound: round(bound, 6))


@st.composite
def schemas(draw: st.DrawFn, name: str) -> ColumnSchema:
    kind, missing = draw(st.sampled_from(Kind)), draw(st.sampled_from(Missing))
    if kind is Kind.NUMERIC:
        lower, upper = sorted(draw(st.lists(_bounds, min_size=2, max_size=2, unique=True)))
        described: dict[str, Any] = {
            "lower": lower,
            "upper": upper,
            "step": draw(st.none() | st.just((upper - lower) / 50 or None)),
        }
        fill: object = draw(st.floats(lower, upper))
    else:
        described = {"categories": tuple(draw(st.lists(st.text(max_size=5), min_size=2, max_size=4, unique=True)))}
        fill = draw(st.sampled_from(described["categories"]))
    return ColumnSchema(
        name=name,
        kind=kind,
        missing=missing,
        fill=fill if missing is Missing.IMPUTE else None,
        outside=draw(st.sampled_from(Outside)),
        **described,
    )


@st.composite
def routers(draw: st.DrawFn) -> Router:
    names = draw(st.lists(st.text(min_size=1, max_size=5), max_size=3, unique=True))
    mechanisms = tuple(
        mechanism_of(draw(schemas(name)), draw(mechanism_settings(_finite | st.just(math.inf)))) for name in names
    )
    sources = [(m.schema.name, None) for m in mechanisms]
    sources += [(m.schema.name, c) for m in mechanisms for c in range(len(m.schema.categories))]
    tests = draw(st.lists(st.sampled_from(sources), max_size=6)) if sources else []
    thresholds = [draw(st.integers(1, 80).map(lambda n: n / 2) | st.just(math.inf)) for _ in tests]
    missing_left = [draw(st.booleans()) for _ in tests]
    split = SplitTests(tuple(tests), np.array(thresholds, np.float64), np.array(missing_left, bool))
    form = TableFormat(decimal=draw(st.sampled_from(".,")), na_values=("-999",))
    return Router(mechanisms, split, draw(st.sampled_from([None, TableFormat(), form])))


def through_json(document: object) -> Any:
    return json.loads(json.dumps(document, allow_nan=False))


@settings(max_examples=80, deadline=None)
@given(router=routers())
def test_a_router_reads_back_as_it_was_written(router: Router) -> None:
    document = through_json(router_to_dict(router))
    found = router_from_dict(document)
    assert [(m.schema, m.settings) for m in found.mechanisms] == [(m.schema, m.settings) for m in router.mechanisms]
    assert found.tests.sources == router.tests.sources
    np.testing.assert_array_equal(found.tests.thresholds, router.tests.thresholds)
    np.testing.assert_array_equal(found.tests.missing_left, router.tests.missing_left)
    assert found.format == router.format
    assert through_json(router_to_dict(found)) == document


@settings(max_examples=80, deadline=None)
@given(schema=schemas("x"), own=mechanism_settings(_finite), is_secure=st.booleans(), is_public=st.booleans())
def test_a_guarantee_reads_back_as_it_was_written(
    schema: ColumnSchema, own: MechanismSettings, is_secure: bool, is_public: bool
) -> None:
    promises = (mechanism_of(schema, own).guarantee(),)
    guarantee = compose(promises, is_secure=is_secure, bounds_are_public=is_public)
    assert guarantee_from_dict(through_json(guarantee.to_dict())) == guarantee


@pytest.mark.parametrize("mechanism", ["global", "local", "adj"])
def test_a_guarantee_without_noise_reads_back_as_none(mechanism: str) -> None:
    own = MechanismSettings(mechanism=mechanism, epsilon=math.inf, theta=5, domain_size=20)
    promise = ColumnMechanism(ColumnSchema(name="x", lower=0, upper=1, missing=Missing.CATEGORY), own).guarantee()
    guarantee = compose((promise,), is_secure=True)
    assert guarantee.notion == "none"
    assert guarantee_from_dict(through_json(guarantee.to_dict())) == guarantee


def test_an_infinite_budget_is_written_as_a_word() -> None:
    mechanism = ColumnMechanism(ColumnSchema(name="x", lower=0, upper=1), MechanismSettings(epsilon=math.inf))
    assert mechanism_to_dict(mechanism)["settings"]["epsilon"] == "inf"  # type: ignore[index, call-overload]
    assert mechanism_from_dict(through_json(mechanism_to_dict(mechanism))).settings.epsilon == math.inf


def document(**changes: Any) -> dict[str, Any]:
    column = {
        "name": "tier",
        "schema": {"kind": "unordered", "categories": ["low", "high"]},
        "settings": {"epsilon": 1.0, "domain_size": 10, **changes.pop("settings", {})},
    }
    test = {"source": "tier", "category": 1, "threshold": 0.5, "missing_left": False, **changes.pop("test", {})}
    return {"columns": [{**column, **changes.pop("column", {})}], "tests": [test], **changes}


def test_the_document_that_is_varied_below_is_sound() -> None:
    assert router_from_dict(document()).tests.sources == (("tier", 1),)


@pytest.mark.parametrize(
    "changes",
    [
        {"tests": None},
        {"tests": ["tier <= 0.5"]},
        {"tests": [{"source": "tier"}]},
        {"columns": None},
        {"columns": [{}]},
        {"column": {"schema": None}},
        {"column": {"schema": {"kind": "colour"}}},
        {"column": {"name": "town"}},
        {"test": {"source": "town"}},
        {"test": {"category": 2}},
        {"test": {"category": -1}},
        {"test": {"category": "high"}},
        {"test": {"category": 1.0}},
        {"test": {"category": True}},
        {"test": {"threshold": "half"}},
        {"test": {"threshold": "nan"}},
        {"test": {"threshold": 10**400}},
        {"column": {"schema": {"kind": "numeric", "lower": 0, "upper": 10**400}}},
        {"column": {"settings": None}},
        {"column": {"settings": []}},
        {"settings": {"epsilon": 0}},
        {"settings": {"epsilon": "lots"}},
        {"settings": {"mechanism": "map"}},
        {"settings": {"theta": 1.5, "mechanism": "local"}},
        {"settings": {"domain_size": 1}},
        {"settings": {"law": "gauss"}},
        {"settings": {"delta": 1}},
    ],
    ids=str,
)
def test_a_malformed_router_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, OpBoostError)):
        router_from_dict(document(**changes))


@pytest.mark.parametrize("key", ["columns", "not_protected", "notion", "epsilon", "protected"])
def test_a_guarantee_without_one_of_its_parts_is_refused(key: str) -> None:
    whole = Guarantee(
        notion="dLDP", epsilon=1.0, domain_loss=2.0, unit="", neighbours="", protected="", not_protected=()
    ).to_dict()
    assert guarantee_from_dict(whole).epsilon == 1.0
    with pytest.raises(ConfigError, match="the guarantee is malformed"):
        guarantee_from_dict({name: value for name, value in whole.items() if name != key})


@pytest.mark.parametrize("columns", [[1], ["x"], [[]], [{}]], ids=str)
def test_a_guarantee_whose_columns_are_no_promises_is_refused(columns: list[object]) -> None:
    with pytest.raises(ConfigError, match="the guarantee is malformed"):
        guarantee_from_dict({"columns": columns, "not_protected": []})


def test_a_guarantee_with_an_unknown_part_is_refused() -> None:
    whole = Guarantee(
        notion="dLDP", epsilon=1.0, domain_loss=2.0, unit="", neighbours="", protected="", not_protected=()
    ).to_dict()
    with pytest.raises(ConfigError, match="the guarantee is malformed"):
        guarantee_from_dict({**whole, "certainty": "absolute"})
