"""Commands that start no run: keys, a ledger's statement, and its copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parties.cli import app
from parties.commands.exit_codes import ExitCode
from protocols.transport.keys import read_secret, read_shared
from tests.support.modes import exposed
from tests.support.released_cells import on_account, train
from tests.support.sites import Sites


def call(*words: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == code, found.output
    return found.output


def test_keys_are_a_pair_or_a_shared_secret(tmp_path: Path) -> None:
    pair = json.loads(call("keygen", "bank", "--folder", str(tmp_path / "keys"), "--format", "json"))
    assert len(read_secret(Path(pair["secret"])).public) == 32
    shared = json.loads(call("keygen", "all", "--folder", str(tmp_path / "keys"), "--shared", "--format", "json"))
    assert len(read_shared(Path(shared["shared"]))) >= 16
    assert exposed(tmp_path / "keys") == set()


def test_a_ledger_is_shown_copied_and_put_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    on_account(path, train())
    before = json.loads(call("ledger", "--path", str(path), "--format", "json"))
    assert [column["column"] for column in before["columns"]] == ["spend", "town", "visits"]
    assert "spend" in call("ledger", "--path", str(path))
    call("backup", str(tmp_path / "copy"), "--path", str(path))
    for file in tmp_path.glob("ledger.sqlite*"):
        file.unlink()
    call("restore", str(tmp_path / "copy"), "--path", str(path))
    assert json.loads(call("ledger", "--path", str(path), "--format", "json")) == before


def test_a_ledger_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    call("ledger", "--path", str(tmp_path / "none.sqlite"), code=ExitCode.STORAGE)


@pytest.mark.parametrize(("is_sound", "code"), [(True, 0), (False, 1)])
def test_the_doctor_fails_on_a_problem(sites: Sites, is_sound: bool, code: int) -> None:
    if not is_sound:
        sites.shop.table["spend"] = 3.0
    found = call("doctor", str(sites.shop.write()), "--wait", "0.1", "--format", "json", code=code)
    assert json.loads(found.splitlines()[-1])["ok"] is is_sound


def test_another_data_file_is_for_prediction_alone(sites: Sites, tmp_path: Path) -> None:
    assert "goes with --for predict or serve" in call(
        "doctor", str(sites.shop.write()), "--data", str(tmp_path / "x.csv"), code=2
    )


def test_a_report_takes_the_place_of_no_file_of_its_run(sites: Sites, tmp_path: Path) -> None:
    run_file = sites.shop.write()
    for name in ("run.yaml", "data.csv", "keys/shop.secret", "keys/bank.public"):
        before = (sites.shop.path / name).read_bytes()
        told = call("report", str(run_file), "--out", str(sites.shop.path / name), code=1)
        assert "is what the run reads or keeps; give another place with --out. Nothing was written" in told
        assert (sites.shop.path / name).read_bytes() == before
    for _ in range(2):
        call("report", str(run_file), "--out", str(tmp_path / "plan.html"))
    assert (tmp_path / "plan.html").read_text().startswith("<!doctype html>")
