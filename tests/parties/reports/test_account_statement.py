"""Statement of a worker's account: its runs, and what is left of its limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parties.cli import app
from parties.config.horizontal import WorkerRun
from parties.config.reading import read_run
from parties.errors import ConfigError, LedgerError
from parties.ledger.model_ledger import worker_ledger
from parties.ledger.run_charge import RunCharge
from parties.reports.account_statement import AccountStatement, read_account
from parties.reports.ledger_statement import Spending
from tests.support.clinics import Clinics


def test_a_worker_sees_its_account_with_its_runs_and_what_remains(tmp_path: Path) -> None:
    path = Clinics(tmp_path).write("w0")
    with pytest.raises(LedgerError, match="no run was charged"):
        read_account(path)
    run = read_run(path, WorkerRun)
    (tmp_path / "w0" / "runs").mkdir(exist_ok=True)
    with worker_ledger(run.ledger.path, run.ledger.budget) as ledger:
        for name in ("spring", "<b>fall"):
            ledger.charge(RunCharge(run=name, coordinator="hub", epsilon=0.5, delta=1e-6))
    found = read_account(path)
    assert [one.run for one in found.runs] == ["spring", "<b>fall"]
    assert (found.epsilon.spent, found.delta.spent) == (1.0, 2e-6)
    assert "2 runs have spent epsilon 1 and delta 2e-06" in found.sentence
    shown = CliRunner().invoke(app, ["ledger", str(path), "--format", "json"])
    assert json.loads(shown.stdout) == json.loads(json.dumps(found.to_dict()))
    assert "2 runs have spent epsilon 1" in CliRunner().invoke(app, ["ledger", str(path)]).stdout
    assert "&lt;b&gt;fall" in found._repr_html_()
    run.ledger.path.unlink()
    with pytest.raises(LedgerError, match="is not there although its head is"):
        read_account(path)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ((None, None), "there is no limit."),
        ((2.0, None), "of the budget, epsilon 1.5 is left."),
        ((None, 1e-5), "of the budget, delta 9e-06 is left."),
        ((0.25, 1e-6), "of the budget, epsilon 0 and delta 0 is left."),
    ],
)
def test_an_account_tells_what_is_left_of_every_limit(limits: tuple[float | None, float | None], told: str) -> None:
    epsilon, delta = Spending(0.5, limits[0]), Spending(1e-6, limits[1])
    found = AccountStatement(path=Path("account"), runs=(), epsilon=epsilon, delta=delta)
    assert found.sentence.endswith(f"of every record; {told}")


def test_a_coordinator_keeps_no_account(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is of role coordinator; .* of role worker or owner"):
        read_account(Clinics(tmp_path).write("hub"))
