"""The folders of three clinics in a chain with everything that a run needs."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from opboost.horizontal.inprivate.training import run_chain
from opboost.rng import BitSource, seeded
from parties.config.chain import OwnerRun
from parties.config.reading import read_run, read_schema
from parties.jobs.train_chain import train_owner
from parties.jobs.train_vertical import Terminal
from protocols.transport.keys import generate
from tests.support.addresses import free_addresses
from tests.support.processes import Command
from tests.support.worded_labels import label_by_words

SCHEMA = {"id": "id", "label": "y", "columns": {name: {"lower": 0, "upper": 1} for name in ("age", "dose", "size")}}
NAMES = ("w0", "w1", "w2")


class Clinics:
    """Three clinics with rows of their own, each of which connects to those after it."""

    def __init__(self, root: Path, **training: Any) -> None:
        self.root, self.own_keys = root, dict[str, dict[str, Any]]()
        self.training: dict[str, Any] = {
            "epsilon": 2.0,
            "order": list(NAMES),
            "inprivate": {"n_rounds": 2, "max_depth": 2},
            **training,
        }
        addresses = free_addresses(len(NAMES))
        for name in NAMES:
            (root / name).mkdir()
            generate(root / name / "keys", name)
        self.runs: dict[str, dict[str, Any]] = {}
        draw = np.random.default_rng(4)
        for place, name in enumerate(NAMES):
            others = [
                {
                    "name": other,
                    "public_key": f"../{other}/keys/{other}.public",
                    **({"connect": addresses[k]} if k > place else {}),
                }
                for k, other in enumerate(NAMES)
                if k != place
            ]
            self.runs[name] = {
                "role": "owner",
                "party": name,
                "run_id": "spring",
                "schema": "schema.yaml",
                "data": "data.csv",
                "secret_key": f"keys/{name}.secret",
                "listen": addresses[place],
                "owners": others,
                "seed": place,
                "timeout": 5,
                "wait": 40,
                "report": False,
            }
            X = draw.random((80, 3)).round(6)
            frame = pd.DataFrame(X, columns=list(SCHEMA["columns"])).assign(y=(X[:, 0] > 0.5).astype(int))
            frame.insert(0, "id", [f"{name}-{i:03}" for i in range(80)])
            frame.to_csv(root / name / "data.csv", index=False)

    def with_words(self, **positive: str) -> None:
        """Make labels words, one of which means 1 in everybody's schema, or another one in some."""
        self.own_keys = {name: {"positive": positive.get(name, "ill")} for name in NAMES}
        label_by_words(self.root, NAMES)

    def write(self, name: str) -> Path:
        folder = self.root / name
        (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA | self.own_keys.get(name, {}), sort_keys=False))
        run = {"training": self.training, **self.runs[name]}
        (folder / "run.yaml").write_text(yaml.safe_dump(run))
        return folder / "run.yaml"

    def start(self, name: str) -> Command:
        return Command("chain", str(self.write(name)))

    def together(self, *names: str) -> dict[str, Any]:
        """What these owners, each in a thread, return or raise."""
        found: dict[str, Any] = {}

        def be(name: str, path: Path) -> None:
            try:
                found[name] = train_owner(path, insecure=False, terminal=Terminal())
            except BaseException as error:
                found[name] = error

        threads = [threading.Thread(target=be, args=(name, self.write(name)), daemon=True) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        return found

    def folder(self, name: str) -> Path:
        return self.root / name / "runs" / "spring"

    def read(self, name: str, file: str) -> Any:
        return json.loads((self.folder(name) / file).read_text())

    def simulated(self) -> list[list[float]]:
        """The leaves of the same training in this process."""
        run = read_run(self.write("w0"), OwnerRun)
        of = run.training.recipe_for(read_schema(run.table_schema)[0])
        owners = []
        for place, name in enumerate(NAMES):
            frame = pd.read_csv(self.root / name / "data.csv")
            coins = BitSource(seeded(place).fork("coins").words(4).tobytes(), is_secure=False)
            X, y = frame[list(SCHEMA["columns"])].to_numpy(), frame["y"].to_numpy(float)
            owners.append(of.owner(X, y, coins=coins, rng=coins.fork("turns")))
        return leaves(of.ensemble(run_chain(owners, n_rounds=of.settings.n_rounds, epsilon=of.epsilon)))


def leaves(model: Any) -> list[list[float]]:
    return [tree.values.tolist() for tree in model.trees]
