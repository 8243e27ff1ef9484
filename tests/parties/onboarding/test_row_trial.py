"""From data files of several owners to a trained model by the commands, as processes, with no file edited."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from parties.runs.run_folder import RunFolder
from tests.support.addresses import free_addresses
from tests.support.modes import exposed, open_umask
from tests.support.processes import Command, finish

OWNERS = ("north", "south")
COLUMNS = ("age", "dose")


@pytest.fixture(autouse=True)
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(5)
    for name in OWNERS:
        table = pd.DataFrame({"id": [f"{name}-{row}" for row in range(150)]})
        table[list(COLUMNS)] = draw.integers(0, 101, (150, 2))
        noted = draw.integers(0, 9, 150)
        table.assign(ill=(table["dose"] > 50).astype(int), cost=table["age"] + noted).to_csv(f"{name}.csv", index=False)


def run(*commands: list[str]) -> list[str]:
    """Run commands at the same time; what each printed."""
    ends = finish(*[Command(*command) for command in commands])
    assert [code for code, _, _ in ends] == [0] * len(commands), ends
    return [out for _, out, _ in ends]


def bounds(*names: str) -> list[str]:
    return [word for name in names for word in ("--bounds", f"{name}=0:120")]


def made(*commands: list[str]) -> None:
    """Make everybody's folder; then send the public keys as it is told."""
    with open_umask():
        found = [json.loads(out) for out in run(*[["init", *words, "--format", "json"] for words in commands])]
    told = [re.fullmatch(r"(\S+) to (.*), whose own go(?:es)? to (\S+)", one["send"]) for one in found]
    places = {Path(one[1]).stem: Path(one[3]) for one in told if one}
    for one in filter(None, told):
        for name in one[2].split(", "):
            shutil.copy(one[1], places[name])
    assert len(places) == len(commands)
    assert [one["next"] for one in found] == [f"opboost doctor {keys.parent}/run.yaml" for keys in places.values()]


def models(*names: str) -> list[str]:
    return [RunFolder(Path(name) / "runs" / "first").path.joinpath("model.json").read_text() for name in names]


def test_a_coordinator_and_two_workers_train_on_files_that_were_made(tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    run(["schema", "north.csv", "--label", "ill", *bounds(*COLUMNS, "cost"), "--out", "agreed.yaml"])
    common = ["--owners", "north,south", "--schema", "agreed.yaml", "--address", address]
    common += ["--epsilon", "4", "--records", "300"]
    hub = ["--role", "coordinator", "--name", "hub", "--folder", "hub"]
    workers = [[f"{name}.csv", "--role", "worker", "--peer", "hub", "--folder", name] for name in OWNERS]
    made(*[[*words, *common] for words in (hub, *workers)])
    assert exposed(tmp_path / "hub") | exposed(tmp_path / "north") == set()
    checked = run(*[["doctor", f"{name}/run.yaml", "--wait", "20"] for name in ("hub", *OWNERS)])
    assert all("0 problems" in out for out in checked), checked
    run(["coordinator", "hub/run.yaml"], *[["worker", f"{name}/run.yaml"] for name in OWNERS])
    assert len(set(models("hub", *OWNERS))) == 1


def test_a_chain_of_owners_trains_on_files_that_were_made(tmp_path: Path) -> None:
    pd.read_csv("north.csv").assign(id=[f"west-{row}" for row in range(150)]).to_csv("west.csv", index=False)
    names = (*OWNERS, "west")
    places = ",".join(f"{name}={address}" for name, address in zip(names, free_addresses(2), strict=False)) + ",west"
    common = ["--role", "owner", "--owners", places, "--epsilon", "4", "--label", "cost", *bounds(*COLUMNS, "cost")]
    made(*[[f"{name}.csv", "--folder", name, *common] for name in names])
    run(*[["chain", f"{name}/run.yaml"] for name in names])
    assert len(set(models(*names))) == 1
