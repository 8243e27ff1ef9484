"""`opboost demo`: both parties as processes on the bundled sample, and baselines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from opboost import rng
from opboost.fit_quality import fit_quality
from opboost.fitting.recipe import with_own_defaults
from opboost.mechanism_settings import DEFAULT_WHOLE_RANGE
from opboost.privacy.guarantee import rounded_up
from opboost.split_tests import bind, feature_matrix
from opboost.vertical import train
from parties.commands.demo_folder import BANK, DATASET, RETAILER, SEED, TEST_SHARE, clear, run_together, sample_folder
from parties.config.desensitize_section import DesensitizeSection
from parties.config.protection import excessive, loss_of
from parties.config.reading import read_run, read_schema, read_section
from parties.config.vertical import ActiveRun
from parties.jobs.life_cycle import Terminal
from parties.jobs.warm_up import compiled_before
from parties.onboarding.project import free_port
from parties.reports.writing import finished_report
from parties.runs.run_folder import RunFolder
from parties.storage.atomic_files import copy, write_text
from parties.tables.party_table import PartyTable, own_columns, read_table
from parties.vertical.party_a import train_jointly
from parties.vertical.party_b import train as take_part
from parties.vertical.prediction_client import predict_locally
from parties.vertical.release_job import PassiveJob
from parties.vertical.simulation import drawn_from, simulate
from parties.vertical.training_job import ActiveJob
from protocols.transport.keys import generate

# Points of the mapped domain where the budget is one per point, and of a cell of the mechanisms that divide it.
POINTS, THETA = 100, 10

# Of a cell that is to hold two of five categories, which are a quarter of the points apart.
CATEGORY_THETA = 50

# Per point inside a cell, for the mechanism whose cells are published and whose whole range no budget covers.
LOCAL_EPSILON = 0.08


def run_demo(out: Path, *, epsilon: float | None, mechanism: str, terminal: Terminal) -> dict[str, Any]:
    """Train and predict jointly on the sample; returns the summary that is also kept as ``summary.json``."""
    started = time.monotonic()
    release = release_settings(epsilon, mechanism)
    clear(out, (BANK, RETAILER))
    if not compiled_before():
        terminal.say("the first run on a machine compiles its loops, which takes up to a minute")
    terminal.say("preparing keys and run files for both parties")
    folders = _prepare(out, release)
    joint_started = time.monotonic()
    _run_jointly(folders, terminal)
    joint_seconds = time.monotonic() - joint_started
    terminal.say("training the baselines: the bank alone, and both without privacy")
    active_only, central = _baselines(folders)
    summary = {
        **_joint_results(folders),
        "score_active_only": active_only,
        "score_central": central,
        "seconds": round(joint_seconds, 2),
        "seconds_in_all": round(time.monotonic() - started, 2),
    }
    RunFolder(out).write_json("summary.json", summary)
    return summary


def release_settings(epsilon: float | None, mechanism: str) -> dict[str, Any]:
    """Settings of the retailer's release for its run file, checked; without an epsilon, the default budget.

    Raises
    ------
    ConfigError
    """
    per_point = {"epsilon": LOCAL_EPSILON if epsilon is None else epsilon, "domain_size": POINTS}
    has_default = epsilon is None and mechanism != "local"
    budget: dict[str, Any] = {"whole_range": DEFAULT_WHOLE_RANGE} if has_default else per_point
    desensitize = {"mechanism": mechanism, **budget, **({} if mechanism == "global" else {"theta": THETA})}
    if mechanism == "local":
        desensitize["columns"] = {"loyalty": {"theta": CATEGORY_THETA}}
    section = read_section(DesensitizeSection, desensitize)
    schema, _ = read_schema(sample_folder() / f"{RETAILER}.schema.yaml")
    losses = (loss_of(mechanism, mechanism.schema.name) for mechanism in section.mechanisms(schema))
    return {"desensitize": desensitize, "no_privacy": bool(excessive([*section.budgets(), *losses]))}


def _run_jointly(folders: dict[str, Path], terminal: Terminal) -> None:
    """Train once and predict in both joint modes, each party as a process of its own every time."""
    terminal.say("aligning records and training: two processes over ZeroMQ with CURVE")
    run_together([["party-a", BANK], ["party-b", RETAILER]], folders)
    for mode, name in (("routed", "predictions.csv"), ("desensitized", "predictions_desensitized.csv")):
        terminal.say(f"predicting jointly, {mode}")
        ids, target = folders[BANK] / "test_ids.txt", _run_folder(folders, BANK).path / name
        ask = ["predict", BANK, "--ids", str(ids), "--mode", mode, "--out", str(target)]
        run_together([ask, ["predict", RETAILER]], folders)


def _joint_results(folders: dict[str, Path]) -> dict[str, Any]:
    """Results of the joint run, from the two run folders."""
    bank, retailer = (_run_folder(folders, party) for party in (BANK, RETAILER))
    scores, guarantee = bank.read_json("metrics.json"), retailer.read_json("guarantee.json")
    meta = [run.read_json("meta.json") for run in (bank, retailer)]
    n_rows, cost = meta[0]["n_rows"], rounded_up(float(guarantee["epsilon"]), 3)
    return {
        "dataset": DATASET,
        "rows": n_rows,
        "rows_test": scores["routed"]["n_rows"],
        "metric": "auc",
        "score_joint": scores["routed"]["auc"],
        "score_joint_desensitized": scores["desensitized"]["auc"],
        "guarantee": guarantee,
        "released": f"ranks of {len(guarantee['columns'])} desensitized columns of {n_rows} records",
        "cost": f"{cost} between neighbouring records ({guarantee['notion']})",
        "bytes_sent": sum(party["sent_bytes"] for party in meta),
        "folders": f"{bank.path} and {retailer.path}",
    }


def _run_folder(folders: dict[str, Path], party: str) -> RunFolder:
    return RunFolder(folders[party] / "runs" / "demo")


def _prepare(out: Path, release: dict[str, Any]) -> dict[str, Path]:
    """Both parties' folders: schema, keys and run file; at the bank also which records to train on and to predict."""
    sample = sample_folder()
    folders = {party: out.resolve() / party for party in (BANK, RETAILER)}
    for party, folder in folders.items():
        generate(folder / "keys", party)
        copy(sample / f"{party}.schema.yaml", folder / "schema.yaml")
        copy(sample / f"{party}.csv.gz", folder / "data.csv.gz")
    for party, peer in ((BANK, RETAILER), (RETAILER, BANK)):
        copy(folders[peer] / "keys" / f"{peer}.public", folders[party] / "keys" / f"{peer}.public")
    _write_ids(folders)
    address = f"tcp://127.0.0.1:{free_port()}"
    shared = {"run_id": "demo", "data": "data.csv.gz", "schema": "schema.yaml", "align": {"method": "psi"}}
    bank: dict[str, Any] = {
        "role": "active",
        "party": BANK,
        **shared,
        "ids": "train_ids.txt",
        "listen": address,
        "secret_key": f"keys/{BANK}.secret",
        "passive": [{"name": RETAILER, "public_key": f"keys/{RETAILER}.public"}],
        "model": {"objective": "binary:logistic"},
    }
    retailer = {
        "role": "passive",
        "party": RETAILER,
        **shared,
        "connect": address,
        "secret_key": f"keys/{RETAILER}.secret",
        "active": {"name": BANK, "public_key": f"keys/{BANK}.public"},
        **release,
    }
    for party, run in ((BANK, bank), (RETAILER, retailer)):
        write_text(folders[party] / "run.yaml", yaml.safe_dump(run, sort_keys=False))
    return folders


def _write_ids(folders: dict[str, Path]) -> None:
    """Give the bank two lists of its ids: a share of the common ones to predict, and all others to train on."""
    bank, retailer = (
        set(pd.read_csv(folders[party] / "data.csv.gz", usecols=["id"], dtype=str)["id"]) for party in (BANK, RETAILER)
    )
    common = np.array(sorted(bank & retailer))
    np.random.default_rng(SEED).shuffle(common)
    test = set(common[: round(TEST_SHARE * len(common))].tolist())
    for name, ids in (("test", test), ("train", bank - test)):
        write_text(folders[BANK] / f"{name}_ids.txt", "\n".join(sorted(ids)) + "\n")


def common_records(tables: dict[str, PartyTable], listed: Path) -> dict[str, PartyTable]:
    """Align the listed records of all parties; only the demo sees both tables."""
    common = set(listed.read_text().split()).intersection(*(table.ids for table in tables.values()))
    ids = pd.Index(sorted(common), dtype=object)
    return {party: table.take(table.ids.get_indexer(ids)) for party, table in tables.items()}


def _baselines(folders: dict[str, Path]) -> tuple[float, float]:
    """Test scores of the bank alone, and of both parties' columns without noise."""
    run = read_run(folders[BANK] / "run.yaml", ActiveRun)
    schemas = {party: read_schema(folder / "schema.yaml")[0] for party, folder in folders.items()}
    tables = {
        party: read_table(folder / "data.csv.gz", schemas[party], needs_label=party == BANK)
        for party, folder in folders.items()
    }
    split = {part: common_records(tables, folders[BANK] / f"{part}_ids.txt") for part in ("train", "test")}
    bank, test = split["train"][BANK], split["test"][BANK]
    assert bank.labels is not None
    assert test.labels is not None
    own = own_columns(bank, schemas[BANK])
    job = ActiveJob(
        party=BANK,
        run_id="central",
        id_digest="",
        own=own,
        labels=bank.labels,
        weights=np.ones(bank.n_rows),
        loss=run.model.loss(),
        parameters=with_own_defaults(run.model.parameters(), run.model.left_open),
    )
    alone = bind(train(own, bank.labels, job.weights, loss=job.loss, parameters=job.parameters), {})
    test_own = {column.name: column.values for column in own_columns(test, schemas[BANK])}
    alone_scores = alone.predict(feature_matrix(alone, test_own, {}, test.n_rows))
    bits = rng.secure()
    passive = PassiveJob(
        party=RETAILER,
        run_id="central",
        id_digest="",
        features=split["train"][RETAILER].features,
        mechanisms=DesensitizeSection(epsilon=np.inf).mechanisms(schemas[RETAILER]),
        rng=bits,
        release=drawn_from(bits),
        share_thresholds=True,
    )
    model = simulate(
        lambda channels: train_jointly(job, channels),
        {RETAILER: lambda channel: take_part(passive, channel)},
        name=BANK,
    )
    central_scores = predict_locally(model, test_own, split["test"][RETAILER].frame)
    folder, found = _run_folder(folders, BANK), []
    for basis, scores in (("by the bank alone", alone_scores), ("without privacy", central_scores)):
        fit = fit_quality(job.loss, test.labels, scores, basis=f"records scored {basis}", metric="auc")
        assert fit is not None
        folder.note_fit(fit)
        found.append(fit.metrics["auc"])
    # The report, once more, with both beside the joint scores of the same records.
    finished_report(folders[BANK] / "run.yaml").write()
    return found[0], found[1]
