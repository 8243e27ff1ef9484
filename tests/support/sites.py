"""The folders of a bank and a shop with everything that a run needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from protocols.transport.keys import generate
from tests.support.addresses import free_addresses
from tests.support.processes import Command
from tests.support.yaml_text import yaml_text

N_CUSTOMERS = 400


class Site:
    """One organisation's folder with everything a run needs."""

    def __init__(self, root: Path, party: str, peer: str, run: dict[str, Any], schema: dict[str, Any]) -> None:
        self.path = root / party
        self.path.mkdir()
        generate(self.path / "keys", party)
        self.party, self.peer = party, peer
        self.run = {
            "party": party,
            "run_id": "spring",
            "data": "data.csv",
            "schema": "schema.yaml",
            "align": {"method": "prealigned"},
            "secret_key": f"keys/{party}.secret",
            "timeout": 10,
            "wait": 20,
            "report": False,
            # Tests count records and compare tables as a whole; those of held-out records say otherwise.
            "held_out": 0,
            **run,
        }
        self.schema = schema
        self.table = pd.DataFrame()

    def write(self) -> Path:
        (self.path / "run.yaml").write_text(yaml_text(self.run, sort_keys=True))
        (self.path / "schema.yaml").write_text(yaml_text(self.schema))
        self.table.to_csv(self.path / "data.csv", index=False)
        return self.path / "run.yaml"

    @property
    def run_folder(self) -> Path:
        return self.path / "runs" / "spring"

    def start(self, command: str, *options: str) -> Command:
        return Command(command, str(self.write()), *options)


class Sites:
    """A bank and a shop that know the same 400 customers."""

    def __init__(self, root: Path) -> None:
        (address,) = free_addresses(1)
        self.bank = Site(
            root,
            "bank",
            "shop",
            {
                "role": "active",
                "listen": address,
                "model": {"n_estimators": 5, "max_depth": 3},
                # Three quarters of a small run's processor time; tests that are about trees and reports say otherwise.
                "correct_noise": False,
                "passive": [{"name": "shop", "public_key": "keys/shop.public"}],
            },
            {"id": "id", "label": "y", "columns": {"age": {"lower": 18, "upper": 90}}},
        )
        self.shop = Site(
            root,
            "shop",
            "bank",
            {
                "role": "passive",
                "connect": address,
                "desensitize": {"epsilon": 0.5, "theta": 50},
                # Most tests ask about the customers that were trained on.
                "allow_routed": {"training_records": True},
                "active": {"name": "bank", "public_key": "keys/bank.public"},
            },
            {
                "id": "id",
                "columns": {
                    "spend": {"lower": 0, "upper": 100},
                    "visits": {"lower": 0, "upper": 50, "missing": "category"},
                },
            },
        )
        for mine, theirs in ((self.bank, self.shop), (self.shop, self.bank)):
            key = f"keys/{mine.party}.public"
            (theirs.path / key).write_text((mine.path / key).read_text())
        draw = np.random.default_rng(2)
        ids = [f"k{i:04}" for i in draw.permutation(N_CUSTOMERS)]
        age, spend = draw.uniform(18, 90, N_CUSTOMERS).round(3), draw.uniform(0, 100, N_CUSTOMERS).round(3)
        visits = np.where(draw.random(N_CUSTOMERS) < 0.1, np.nan, draw.integers(0, 51, N_CUSTOMERS))
        y = (age / 90 + spend / 50 + draw.normal(0, 0.3, N_CUSTOMERS) > 1.6).astype(int)
        self.bank.table = pd.DataFrame({"id": ids, "age": age, "y": y})
        self.shop.table = pd.DataFrame({"id": ids, "spend": spend, "visits": visits}).sample(frac=1, random_state=1)


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path)
