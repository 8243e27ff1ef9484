"""Preparation: the whole file is checked whichever records are listed, and its digest changes with any cell."""

from __future__ import annotations

from typing import Any

import pytest

from opboost.errors import DataError
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun, PassiveRun
from parties.doctor.check_result import Status
from parties.doctor.vertical import examine
from parties.errors import ConfigError, TableError
from parties.vertical.preparation import prepare_active, prepare_passive
from tests.support.partitioned_sites import divide
from tests.support.sites import Sites


def active(sites: Sites) -> Any:
    path = sites.bank.write()
    return prepare_active(read_run(path, ActiveRun), path)


def passive(sites: Sites) -> Any:
    path = sites.shop.write()
    return prepare_passive(read_run(path, PassiveRun), path)


def test_both_sides_prepare_the_same_records_and_nothing_is_written(sites: Sites) -> None:
    bank, shop = active(sites), passive(sites)
    assert bank.table.n_rows == shop.table.n_rows == 400
    assert bank.job().id_digest == shop.job().id_digest
    assert [column.name for column in bank.job().own] == ["age"]
    assert not bank.run.run_folder.exists()
    assert not shop.run.ledger.path.exists()


def test_a_digest_changes_with_any_cell_label_or_id_and_not_with_the_order_of_rows(sites: Sites) -> None:
    first = active(sites).digest, passive(sites).digest
    for site in (sites.bank, sites.shop):
        site.table = site.table.sample(frac=1, random_state=3)
    assert (active(sites).digest, passive(sites).digest) == first
    sites.bank.table.loc[3, "y"] = 1 - sites.bank.table.loc[3, "y"]
    sites.shop.table.loc[3, "spend"] = (sites.shop.table.loc[3, "spend"] + 50) % 100
    assert active(sites).digest != first[0]
    assert passive(sites).digest != first[1]


def test_a_folder_of_files_is_the_table_that_they_are_together(sites: Sites) -> None:
    for site in (sites.bank, sites.shop):
        site.table = site.table.sort_values("id")
        site.table.to_parquet(site.path / "whole.parquet", index=False)
        divide(site, 3)
    digests = []
    for data in ("whole.parquet", "parts"):
        sites.bank.run["data"] = sites.shop.run["data"] = data
        digests.append((active(sites).digest, passive(sites).digest))
        told = examine(sites.shop.write(), wait_s=0.1)
        assert [one.check for one in told if one.status is Status.PROBLEM] == []
    assert digests[0] == digests[1]


def test_records_that_are_not_listed_are_checked_too(sites: Sites) -> None:
    (sites.shop.path / "ids.txt").write_text("\n".join(sorted(sites.shop.table["id"])[1:50]))
    sites.shop.run["ids"] = "ids.txt"
    assert passive(sites).table.n_rows == 49
    first = sites.shop.table["id"] == min(sites.shop.table["id"])
    sites.shop.table.loc[first, "spend"] = float("inf")
    with pytest.raises(DataError):
        passive(sites)


def test_bounds_of_noised_labels_are_checked_as_labels_are(sites: Sites) -> None:
    sites.bank.run["model"] = {**sites.bank.run["model"], "objective": "reg:squarederror"}
    for bound in (1e100, 1e101):
        sites.bank.run |= {"label_epsilon": 1.0, "label_bounds": [-bound, bound]}
        if bound == 1e100:
            active(sites)
            continue
        with pytest.raises(DataError, match=r"labels of magnitude 1e\+100 at most"):
            active(sites)


def test_faults_of_a_file_are_refused(sites: Sites) -> None:
    sites.shop.table["spend"] = 3.0
    with pytest.raises(TableError, match="constant columns spend"):
        passive(sites)
    sites.bank.table["y"] = 1
    with pytest.raises(TableError, match="label column 'y' holds a single value"):
        active(sites)
    del sites.bank.schema["label"]
    with pytest.raises(ConfigError, match="names no `label`, which the active party needs"):
        active(sites)


def test_before_alignment_a_job_only_greets(sites: Sites) -> None:
    for site in (sites.bank, sites.shop):
        site.run["align"] = {"method": "psi"}
    assert active(sites).job().id_digest is None
    assert passive(sites).job().id_digest is None


@pytest.mark.parametrize("seed", [None, 4])
def test_noise_is_secure_unless_there_is_a_seed(sites: Sites, seed: int | None) -> None:
    sites.shop.run["seed"] = seed
    run = read_run(sites.shop.write(), PassiveRun)
    assert run.bits.is_secure is (seed is None)
    same = run.bits.words(2).tolist() == run.bits.words(2).tolist()
    assert same is (seed is not None)


def test_names_of_records_go_with_their_exact_codes(sites: Sites) -> None:
    prepared = passive(sites)
    table = prepared.named()
    assert len(table) == len(table.keys()) == 400
