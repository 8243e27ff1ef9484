"""The folders of a hub and three clinics with everything that a run needs."""

from __future__ import annotations

import copy
import json
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from opboost.horizontal.federated.owners import FederatedAmongOwners
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.rng import seeded
from opboost.trees.holder import SummedHolders
from parties.config.horizontal import CoordinatorRun
from parties.config.reading import read_run, read_schema
from parties.config.recipes import make_recipe
from parties.horizontal.public_randomness import commitment, public_bits
from parties.jobs.train_horizontal import train_coordinator, train_worker
from parties.jobs.train_vertical import Terminal
from protocols.transport.keys import generate
from tests.support.addresses import free_addresses
from tests.support.processes import Command
from tests.support.worded_labels import label_by_words
from tests.support.yaml_text import yaml_text

SCHEMA = {
    "id": "id",
    "label": "y",
    "columns": {"age": {"lower": 0, "upper": 1}, "dose": {"lower": 0, "upper": 1}, "size": {"lower": 0, "upper": 1}},
}
NAMES = ("w0", "w1", "w2")
COLUMNS = tuple(SCHEMA["columns"])


class Clinics:
    """A hub and three clinics with rows of their own."""

    def __init__(self, root: Path, **training: Any) -> None:
        (address,) = free_addresses(1)
        self.root, self.schema = root, copy.deepcopy(SCHEMA)
        self.own_keys: dict[str, dict[str, Any]] = {}
        self.training: dict[str, Any] = {
            "epsilon": 2.0,
            "delta": 1e-6,
            "noise": "workers",
            "workers": 3,
            "threshold": 2,
            "honest": 2,
            **({} if "recipe" in training else {"sgbdt": {"n_estimators": 6, "max_depth": 2}}),
            **training,
        }
        for name in ("hub", *NAMES):
            (root / name).mkdir()
            generate(root / name / "keys", name)
        for name in ("hub", *NAMES):
            for other in ("hub", *NAMES):
                key = f"keys/{other}.public"
                (root / name / key).write_text((root / other / key).read_text())
        common = {"run_id": "spring", "schema": "schema.yaml", "timeout": 10, "wait": 60, "report": False}
        self.runs: dict[str, dict[str, Any]] = {
            "hub": {
                **common,
                "role": "coordinator",
                "party": "hub",
                "secret_key": "keys/hub.secret",
                "listen": address,
                "workers": [{"name": name, "public_key": f"keys/{name}.public"} for name in NAMES],
                "seed": 8,
            }
        }
        draw = np.random.default_rng(4)
        for place, name in enumerate(NAMES):
            self.runs[name] = {
                **common,
                "role": "worker",
                "party": name,
                "secret_key": f"keys/{name}.secret",
                "data": "data.csv",
                "connect": address,
                "coordinator": {"name": "hub", "public_key": "keys/hub.public"},
                "seed": place,
                "peers": [{"name": other, "public_key": f"keys/{other}.public"} for other in NAMES if other != name],
            }
            X = draw.random((80, 3)).round(6)
            frame = pd.DataFrame(X, columns=list(COLUMNS)).assign(y=(X[:, 0] > 0.5).astype(int))
            frame.insert(0, "id", [f"{name}-{i:03}" for i in range(80)])
            frame.to_csv(root / name / "data.csv", index=False)

    def with_categories(self) -> None:
        """Make sizes one of three categories, whose numbers are their words."""
        self.schema["columns"]["size"] = {"kind": "unordered", "categories": ["0", "1", "2"]}
        for name in NAMES:
            frame = pd.read_csv(self.root / name / "data.csv")
            frame.assign(size=(3 * frame["size"]).astype(int)).to_csv(self.root / name / "data.csv", index=False)

    def with_words(self, **positive: str) -> None:
        """Make labels words, one of which means 1 in everybody's schema, or another one in some."""
        self.schema["positive"] = "ill"
        self.own_keys = {name: {"positive": word} for name, word in positive.items()}
        label_by_words(self.root, NAMES)

    def write(self, name: str) -> Path:
        folder = self.root / name
        (folder / "schema.yaml").write_text(yaml_text(self.schema | self.own_keys.get(name, {})))
        training = self.runs[name].get("training", self.training)
        (folder / "run.yaml").write_text(yaml_text({**self.runs[name], "training": training}, sort_keys=True))
        return folder / "run.yaml"

    def start(self, name: str, *options: str) -> Command:
        return Command("coordinator" if name == "hub" else "worker", str(self.write(name)), *options)

    def outdate(self, name: str, other: str) -> None:
        """Give somebody an earlier public key of another one, who has a new one since."""
        _, earlier = generate(self.root / "earlier keys", other)
        (self.root / name / "keys" / f"{other}.public").write_text(earlier.read_text())

    def in_thread(self, name: str, *, insecure: bool = False) -> queue.SimpleQueue[Any]:
        """The same without a process; what it returns or raises can be had from the queue."""
        call, path = train_coordinator if name == "hub" else train_worker, self.write(name)
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def run() -> None:
            try:
                found.put(call(path, insecure=insecure, terminal=Terminal()))
            except BaseException as error:
                found.put(error)

        threading.Thread(target=run, daemon=True).start()
        return found

    def folder(self, name: str) -> Path:
        return self.root / name / "runs" / "spring"

    def read(self, name: str, file: str) -> Any:
        document = json.loads((self.folder(name) / file).read_text())
        return document.get(file, document)

    def recipe(self) -> SGBDTAmongOwners | FederatedAmongOwners:
        run = read_run(self.write("hub"), CoordinatorRun)
        return make_recipe(run.training, read_schema(run.table_schema)[0])

    def simulated(self, kind: Callable[[list[Any]], Any] = SummedHolders) -> list[list[float]]:
        """The leaves of the same training in this process."""
        of = self.recipe()
        random = [seeded(place).fork("public").words(4).tobytes() for place in range(3)]
        committed = [commitment("spring", name, each) for name, each in zip(NAMES, random, strict=True)]
        rows = [np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 32) for parts in (committed, random)]
        holders = []
        for place, name in enumerate(NAMES):
            frame = pd.read_csv(self.root / name / "data.csv")
            bits = seeded(place).fork("rows")
            X, y = frame[list(self.schema["columns"])].to_numpy(), frame["y"].to_numpy(float)
            holders.append(of.rows(X, y, rng=bits))
        model = of.train(kind(holders), shape_bits=public_bits("spring", NAMES, *rows), rng=seeded(8))
        return [tree.values.tolist() for tree in model.trees]
