"""`opboost demo --horizontal`: three owners of rows as processes, and baselines.

The bundled sample's columns, which two parties hold, are put together for this, and the rows divided among three.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from opboost.arrays import Values
from opboost.columns import OwnColumn
from opboost.metrics import evaluate
from opboost.privacy.guarantee import rounded_up
from opboost.split_tests import bind, feature_matrix
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic
from opboost.vertical import train
from parties.commands.demo_folder import BANK, DATASET, RETAILER, SEED, TEST_SHARE, clear, run_together, sample_folder
from parties.config.chain import ChainSection
from parties.config.protection import excessive, given_budgets
from parties.config.reading import read_schema, read_section
from parties.config.training_section import TrainingSection
from parties.horizontal.row_table import OwnerRows
from parties.jobs.life_cycle import Terminal
from parties.onboarding.party_folder import common_keys
from parties.onboarding.project import free_port
from parties.onboarding.row_project import coordinator_keys, owner_keys, training_of_workers, worker_keys
from parties.runs.run_folder import RunFolder
from parties.storage.atomic_files import copy, write_text
from parties.storage.documents import read_yaml
from protocols.transport.keys import generate

HUB = "hub"
OWNERS = ("north", "south", "west")

# Trees of the private model with a coordinator, and of the models without privacy.
N_TREES = 100


def run_horizontal_demo(out: Path, *, epsilon: float, scheme: str, terminal: Terminal) -> dict[str, Any]:
    """Train on three owners' rows; returns the summary that is also kept as ``summary.json``."""
    started = time.monotonic()
    training = _training(epsilon, scheme)
    clear(out, (BANK, RETAILER, HUB, *OWNERS))
    terminal.say("preparing keys, rows and run files for everybody")
    folders = _prepare(out, training, scheme)
    terminal.say(f"training: {len(folders)} processes over ZeroMQ with CURVE")
    train_started = time.monotonic()
    if scheme == "inprivate":
        run_together([["chain", name] for name in OWNERS], folders)
    else:
        run_together([["coordinator", HUB], *(["worker", name] for name in OWNERS)], folders)
    seconds = time.monotonic() - train_started
    terminal.say("training the baselines: each owner alone, and all rows without privacy")
    runs = {name: RunFolder(folder / "runs" / "demo") for name, folder in folders.items()}
    home = runs[OWNERS[0] if scheme == "inprivate" else HUB]
    guarantee = home.read_json("guarantee.json")
    alone, central = _baselines(folders)
    test = _rows(folders[OWNERS[0]], "test.csv")
    summary = {
        "dataset": DATASET,
        "scheme": scheme,
        "rows": sum(run.read_json("meta.json")["n_rows"] for run in runs.values()),
        "rows_test": len(test.labels),
        "metric": "auc",
        "score_joint": _auc(test, home.load_ensemble().predict(test.values)),
        "score_alone": alone,
        "score_central": central,
        "guarantee": guarantee,
        "promise": _promise(guarantee),
        "bytes_sent": sum(run.read_json("meta.json")["sent_bytes"] for run in runs.values()),
        "seconds": round(seconds, 2),
        "seconds_in_all": round(time.monotonic() - started, 2),
        "folders": ", ".join(str(run.path) for run in runs.values()),
    }
    RunFolder(out).write_json("summary.json", summary)
    return summary


def _training(epsilon: float, scheme: str) -> dict[str, Any]:
    """The section that all run files share, checked before anything is written."""
    if scheme == "inprivate":
        chain = {"epsilon": epsilon, "order": list(OWNERS), "inprivate": {"n_rounds": 2}}
        read_section(ChainSection, chain)
        return chain
    section = training_of_workers(len(OWNERS), epsilon=epsilon, delta=1e-6, records=14_400)
    section["recommended"]["n_estimators"] = N_TREES
    read_section(TrainingSection, section)
    return section


def _promise(guarantee: Mapping[str, Any]) -> str:
    epsilon, delta = rounded_up(float(guarantee["epsilon"])), rounded_up(guarantee["delta"], 3)
    return f"{guarantee['notion']}: epsilon {epsilon}, delta {delta}, per record ({guarantee['account']})"


def _prepare(out: Path, training: dict[str, Any], scheme: str) -> dict[str, Path]:
    """Everybody's folder: schema, rows, keys and run file."""
    names = OWNERS if scheme == "inprivate" else (HUB, *OWNERS)
    folders = {name: out.resolve() / name for name in names}
    for name, folder in folders.items():
        generate(folder / "keys", name)
    for name, folder in folders.items():
        for other in names:
            if other != name:
                copy(folders[other] / "keys" / f"{other}.public", folder / "keys" / f"{other}.public")
        write_text(folder / "schema.yaml", yaml.safe_dump(_schema(), sort_keys=False))
    parts, test = _divided_rows()
    for name, part in zip(OWNERS, parts, strict=True):
        write_text(folders[name] / "data.csv", part.to_csv(index=False))
    write_text(folders[OWNERS[0]] / "test.csv", test.to_csv(index=False))
    home = OWNERS[0] if scheme == "inprivate" else HUB
    files = _chain_files() if scheme == "inprivate" else _star_files()
    for name, run in files.items():
        # One report is enough for a demo.
        document = {**common_keys(run["role"], name, "demo"), **run, "report": name == home, "training": training}
        if excessive(given_budgets("training", epsilon=training["epsilon"])):
            document["no_privacy"] = True
        write_text(folders[name] / "run.yaml", yaml.safe_dump(document, sort_keys=False))
    return folders


def _star_files() -> dict[str, dict[str, Any]]:
    address = f"tcp://127.0.0.1:{free_port()}"
    worker = {"role": "worker", "data": "data.csv"}
    workers = {name: {**worker, **worker_keys(name, OWNERS, HUB, address)} for name in OWNERS}
    return {HUB: {"role": "coordinator", **coordinator_keys(OWNERS, address)}, **workers}


def _chain_files() -> dict[str, dict[str, Any]]:
    owners = {name: f"tcp://127.0.0.1:{free_port()}" for name in OWNERS[:-1]} | {OWNERS[-1]: None}
    return {name: {"role": "owner", "data": "data.csv", **owner_keys(name, owners)} for name in OWNERS}


def _schema() -> dict[str, Any]:
    """Both parties' columns in one schema."""
    bank, retailer = (read_yaml(sample_folder() / f"{party}.schema.yaml") for party in (BANK, RETAILER))
    return {"id": bank["id"], "label": bank["label"], "columns": {**bank["columns"], **retailer["columns"]}}


def _divided_rows() -> tuple[list[pd.DataFrame], pd.DataFrame]:
    """Each owner's rows of both parties' columns, and rows that nobody trains on."""
    bank, retailer = (pd.read_csv(sample_folder() / f"{party}.csv.gz", dtype={"id": str}) for party in (BANK, RETAILER))
    rows = bank.merge(retailer, on="id").sort_values("id").sample(frac=1, random_state=SEED)
    n_test = round(TEST_SHARE * len(rows))
    train_rows = rows.iloc[n_test:]
    return [train_rows.iloc[position :: len(OWNERS)] for position in range(len(OWNERS))], rows.iloc[:n_test]


def _rows(folder: Path, file: str) -> OwnerRows:
    return OwnerRows.of(folder / file, *read_schema(folder / "schema.yaml"))


def _baselines(folders: Mapping[str, Path]) -> tuple[dict[str, float], float]:
    """Test scores without privacy: of every owner alone, and of all rows."""
    parts = {name: _rows(folders[name], "data.csv") for name in OWNERS}
    test = _rows(folders[OWNERS[0]], "test.csv")
    alone = {name: _score(part.values, part.labels, test) for name, part in parts.items()}
    values, labels = (np.concatenate([getattr(part, what) for part in parts.values()]) for what in ("values", "labels"))
    return alone, _score(values, labels, test)


def _score(values: Values, labels: Values, test: OwnerRows) -> float:
    columns = [OwnColumn(name, values[:, position]) for position, name in enumerate(test.schema.names)]
    parameters = BoostingParameters(n_estimators=N_TREES, max_depth=4, learning_rate=0.1)
    grown = train(columns, labels, np.ones(len(labels)), loss=Logistic(), parameters=parameters)
    model = bind(grown, {})
    own = {name: test.values[:, position] for position, name in enumerate(test.schema.names)}
    return _auc(test, model.predict(feature_matrix(model, own, {}, len(test.labels))))


def _auc(test: OwnerRows, predictions: Values) -> float:
    return evaluate(Logistic(), test.labels, predictions)["auc"]
