"""Run files of horizontal training: the role decides, and noise that can be drawn again costs everything."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from opboost.schema import ColumnSchema, TableSchema
from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_schema
from parties.config.record_runs import charge_of, peers_of, read_record_run, recipe_of, terms_of
from parties.errors import ConfigError
from tests.support.clinics import Clinics
from tests.support.sites import Sites


def test_a_run_file_is_read_by_its_role(tmp_path: Path, sites: Sites) -> None:
    (tmp_path / "clinics").mkdir()
    clinics = Clinics(tmp_path / "clinics")
    hub, worker = (read_record_run(clinics.write(name)) for name in ("hub", "w0"))
    assert isinstance(hub, CoordinatorRun)
    assert isinstance(worker, WorkerRun)
    assert peers_of(hub) == ("w0", "w1", "w2")
    assert "hub" in peers_of(worker)
    with pytest.raises(ConfigError):
        read_record_run(sites.bank.write())


@pytest.mark.parametrize("has_seed", [False, True])
def test_a_charge_is_the_guarantee_or_infinite_with_a_seed(tmp_path: Path, has_seed: bool) -> None:
    clinics = Clinics(tmp_path)
    if not has_seed:
        del clinics.runs["w0"]["seed"]
    run = read_record_run(clinics.write("w0"))
    assert isinstance(run, WorkerRun)
    schema, _ = read_schema(run.table_schema)
    recipe = recipe_of(run, schema, tmp_path)
    charge = charge_of(run, recipe)
    assert charge.epsilon == (math.inf if has_seed else recipe.guarantee(is_secure=True).epsilon)
    assert (charge.run, charge.coordinator) == ("spring", "hub")
    assert charge.delta == recipe.guarantee(is_secure=True).delta


def test_public_keys_of_workers_are_terms_of_their_run(tmp_path: Path) -> None:
    run = read_record_run(Clinics(tmp_path).write("w0"))
    schema, _ = read_schema(run.table_schema)
    recipe = recipe_of(run, schema, tmp_path)
    without = terms_of(run, schema, recipe=recipe, lasting_keys={})
    assert without["known_workers"] is True
    found = terms_of(run, schema, recipe=recipe, lasting_keys={"w1": bytes(range(32))})
    assert found == {**without, "public key of w1": bytes(range(32)).hex()}


def test_owners_of_a_chain_are_charged_under_their_order() -> None:
    run = OwnerRun.model_validate(
        {
            "role": "owner",
            "party": "w0",
            "run_id": "spring",
            "schema": "schema.yaml",
            "data": "data.csv",
            "owners": [{"name": "w1", "connect": "tcp://127.0.0.1:5556"}],
            "training": {"recipe": "inprivate", "epsilon": 2.0, "order": ["w1", "w0"]},
        }
    )
    assert peers_of(run) == ("w1",)
    schema = TableSchema(columns=(ColumnSchema(name="age", lower=0, upper=1),), id="id", label="y")
    assert charge_of(run, recipe_of(run, schema, Path("run.yaml"))).coordinator == "chain of w1, w0"
