"""Ledger statement: what the ledger says, against the limits of a run file, which only a passive party has."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from opboost.schema import ColumnSchema
from parties.config.reading import read_run
from parties.config.vertical import PassiveRun
from parties.errors import ConfigError, LedgerError, OverBudget
from parties.ledger.budget import Budget, Limit
from parties.ledger.pricing import planned
from parties.ledger.release_ledger import Ledger
from parties.reports.ledger_statement import (
    DEFAULT_PATH,
    Spending,
    known_statement,
    ledger_path,
    left_over,
    read_statement,
    statement,
)
from parties.tables.blocks import record_names
from tests.support.clinics import Clinics
from tests.support.released_cells import IDS, mechanisms, on_account, train
from tests.support.sites import Sites


@pytest.mark.parametrize(
    ("spent", "limit", "remaining"), [(1.0, None, None), (1.0, math.inf, math.inf), (1.0, 3.0, 2.0), (3.0, 1.0, 0.0)]
)
def test_what_remains_is_never_negative(spent: float, limit: float | None, remaining: float | None) -> None:
    assert Spending(spent, limit).remaining == remaining


@pytest.mark.parametrize(
    ("left", "shown"),
    [
        (0.99996, "0.9999"),
        (1.0, "1"),
        (1 - 1e-13, "1"),
        (0.0, "0"),
        (-0.00012345, "-0.0001235"),
        (math.inf, "infinite"),
    ],
)
def test_what_remains_is_rounded_down(left: float, shown: str) -> None:
    assert left_over(left) == shown


def test_a_release_is_in_the_statement_of_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    for _ in range(2):
        on_account(path, train())
    found = read_statement(None, path)
    assert (found.n_records, found.peers) == (200, ("bank",))
    assert {one.column: (one.n_releases, one.n_reuses) for one in found.columns} == dict.fromkeys(
        ("spend", "visits", "town"), (1, 1)
    )
    assert found.record.spent == pytest.approx(
        sum(one.epsilon.spent + one.category_epsilon.spent for one in found.columns)
    )
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["columns"][0]["epsilon"]["remaining"] is None
    assert document["path"] == str(path)


def test_what_remains_is_per_step_of_today_as_the_limit_is(tmp_path: Path) -> None:
    """A column that is charged by a smaller unit than its step: three times as much remained as would be allowed."""
    path, limited = tmp_path / "ledger.sqlite", Budget(Limit(epsilon=5.0), per_record=20.0)
    on_account(path, train())
    schema = ColumnSchema(name="spend", lower=0, upper=100, step=2.5)
    (later,) = planned(mechanisms(schema, epsilon=0.2), record_names(IDS), is_secure=True)
    with Ledger(path) as ledger:
        steps = {"spend": 2.5, "visits": 1.0}
        plain, found = (statement(ledger, replace(limited, steps=one)) for one in ({}, steps))
        (before, spend), (_, visits) = (
            [next(c for c in one.columns if c.column == name) for one in (plain, found)] for name in ("spend", "visits")
        )
        assert spend.epsilon.spent == 3 * before.epsilon.spent
        assert found.record.spent == pytest.approx(plain.record.spent + 2 * before.epsilon.spent)
        assert spend.unit is not None
        assert spend.unit.words == "a step of 2.5, 3 units of its account"
        assert visits in plain.columns
        more = later.cost.loss(3)
        for limits in (Budget(Limit(epsilon=spend.epsilon.spent + more)), Budget(per_record=found.record.spent + more)):
            ledger.sums.balances.check([later.cost], replace(limits, steps=steps))
        for limits in (Budget(Limit(before.epsilon.spent + more)), Budget(per_record=plain.record.spent + more)):
            with pytest.raises(OverBudget):
                ledger.sums.balances.check([later.cost], replace(limits, steps=steps))


def test_a_run_files_schema_says_the_steps(sites: Sites) -> None:
    on_account(sites.shop.path / "ledger.sqlite", train())
    sites.shop.run["ledger"] = {"path": "ledger.sqlite", "budget": {"epsilon": 5.0}}
    path = sites.shop.path / "ledger.sqlite"
    (charged,) = [one for one in read_statement(None, path).columns if one.column == "spend"]
    sites.shop.schema["columns"]["spend"] |= {"step": 2.5}
    (found,) = [one for one in read_statement(sites.shop.write(), None).columns if one.column == "spend"]
    assert found.epsilon.spent == 3 * charged.epsilon.spent


def test_limits_are_those_of_the_run_file(sites: Sites) -> None:
    sites.shop.run["ledger"] = {"path": "ledger.sqlite", "budget": {"epsilon": 0.75}}
    on_account(sites.shop.path / "ledger.sqlite", train())
    found = {one.column: one for one in read_statement(sites.shop.write(), None).columns}
    assert found["spend"].epsilon.limit is not None
    assert ledger_path(sites.shop.path / "run.yaml", None) == sites.shop.path / "ledger.sqlite"
    assert ledger_path(sites.shop.path / "run.yaml", Path("other")) == Path("other")
    assert ledger_path(None, None) == DEFAULT_PATH


def test_another_role_has_no_such_ledger(sites: Sites, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is of role active; .* of role passive"):
        ledger_path(sites.bank.write(), None)
    (tmp_path / "clinics").mkdir()
    with pytest.raises(ConfigError, match=r"is of role worker; .* of role passive"):
        ledger_path(Clinics(tmp_path / "clinics").write("w0"), None)


def test_a_ledger_that_is_not_there_is_not_begun(tmp_path: Path) -> None:
    with pytest.raises(LedgerError):
        read_statement(None, tmp_path / "none.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_records_that_were_charged_are_counted_column_by_column(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    on_account(path, train())
    found = read_statement(None, path)
    assert ({one.n_records for one in found.columns}, found.n_spared) == ({200}, 0)
    assert "<td>spend</td>" in found._repr_html_()


def test_a_ledger_behind_a_link_that_leads_nowhere_is_not_told_to_be_empty(sites: Sites, tmp_path: Path) -> None:
    """On a disk that is not mounted, what was spent would have counted as nothing."""
    sites.shop.run["ledger"] = {"path": "people.sqlite"}
    path = sites.shop.write()
    (path.parent / "people.sqlite").symlink_to(tmp_path / "people.sqlite")
    for ask in (lambda: known_statement(path, read_run(path, PassiveRun)), lambda: read_statement(path, None)):
        with pytest.raises(LedgerError, match=r"is a link to .*, which is not there"):
            ask()
