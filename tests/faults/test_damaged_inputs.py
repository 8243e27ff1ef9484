"""The bundled sample's files, damaged at random: fine or one sentence, and the same from a party and its doctor."""

from __future__ import annotations

import gzip
import io
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from parties.commands.demo_folder import sample_folder
from parties.config.reading import read_any_run
from parties.config.vertical import ActiveRun
from parties.doctor.check_result import Status
from parties.doctor.vertical import examine
from parties.errors import EXPECTED_ERRORS
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.vertical.preparation import prepare_active, prepare_passive
from protocols.transport.keys import generate
from tests.support.addresses import free_addresses

# Damaged inputs of each kind; OPBOOST_DAMAGED_INPUTS sets another number.
N_EACH = int(os.environ.get("OPBOOST_DAMAGED_INPUTS", "12"))
SEED = int(os.environ.get("OPBOOST_DAMAGED_SEED", "1"))
N_ROWS = 150
LIMIT_S = 120

# What the doctor checks beyond what a party prepares.
FURTHER = {"peer", "address", "connection", "keys", "run folder", "ledger", "budget"}

CELLS = (
    "",
    " ",
    "nan",
    "NA",
    "inf",
    "-inf",
    "1e999",
    "0x10",
    "TRUE",
    "None",
    '"',
    '""',
    "é",
    "\t",
    "1_000",
    "1,5",
    "-0",
    "1e5",
    "９",
    "k00001",
    "\x7f",
    "2024-01-01",
)
VALUES = (
    "~",
    "[]",
    "{}",
    ".inf",
    "-.inf",
    ".nan",
    "1e300",
    "-1",
    "0",
    "1",
    "yes",
    "no",
    '""',
    '"\\0"',
    '"a\\nb"',
    "*x",
    "&x 1",
    "!!int x",
    "!!binary x",
    "2024-13-45",
    "tcp://h:70000",
    "ipc://",
    "1000000000000",
    "0.5",
    "adj",
    "local",
    "[a, b]",
    "{a: 1}",
    "a: b",
    "- x",
    "../..",
    "/dev/null",
    ".",
    "x" * 300,
    "0xffffffffffffffffffff",
    "psi",
    "hashed",
    "dask",
    "first",
)


def flipped(content: bytes, draw: random.Random) -> bytes:
    """A few bits flipped, bytes replaced, put in or left out, or the end cut off."""
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4))):
        place, some = draw.randrange(len(found) + 1), draw.randbytes(draw.randrange(1, 9))
        match draw.randrange(5):
            case 0 if place < len(found):
                found[place] ^= 1 << draw.randrange(8)
            case 1:
                found[place : place + 1] = some[:1]
            case 2:
                found[place:place] = some
            case 3:
                del found[place : place + len(some)]
            case 4:
                del found[place:]
    return bytes(found)


def with_other_cells(content: bytes, draw: random.Random) -> bytes:
    """Cells of a CSV file replaced, put in or left out, or lines repeated."""
    lines = content.decode().split("\n")
    for _ in range(draw.choice((1, 1, 3))):
        place = draw.randrange(len(lines))
        cells = lines[place].split(",")
        at = draw.randrange(len(cells))
        match draw.randrange(5):
            case 0 | 1:
                cells[at] = draw.choice(CELLS)
            case 2:
                cells[at:at] = [draw.choice(CELLS)]
            case 3:
                del cells[at]
            case 4:
                lines.insert(draw.randrange(len(lines)), lines[place])
        lines[place] = ",".join(cells)
    return "\n".join(lines).encode()


def with_other_values(content: bytes, draw: random.Random) -> bytes:
    """Values of a YAML file replaced, or lines repeated, moved, indented or left out."""
    lines = content.decode().splitlines()
    for _ in range(draw.choice((1, 1, 3))):
        place = draw.randrange(len(lines))
        key, colon, _ = lines[place].partition(":")
        match draw.randrange(6):
            case 0 | 1 | 2:
                lines[place] = f"{key}{colon or ':'} {draw.choice(VALUES)}"
            case 3:
                lines.insert(draw.randrange(len(lines)), lines[place])
            case 4:
                lines[place] = " " * draw.randrange(1, 4) + lines[place]
            case 5:
                del lines[place]
        if not lines:
            break
    return "\n".join(lines).encode()


class Party:
    """A party of the demo, with the first records of the bundled sample; every damage begins with sound files."""

    def __init__(self, root: Path, name: str, peer: str) -> None:
        self.path = root / name
        generate(self.path / "keys", name)
        shutil.copyfile(sample_folder() / f"{name}.schema.yaml", self.path / "schema.yaml")
        self.schema = (self.path / "schema.yaml").read_bytes()
        frame = pd.read_csv(sample_folder() / f"{name}.csv.gz", dtype={"id": str}).head(N_ROWS)
        packed = io.BytesIO()
        frame.to_parquet(packed, row_group_size=60)
        csv = frame.to_csv(index=False).encode()
        self.data = {"data.csv": csv, "data.csv.gz": gzip.compress(csv), "data.parquet": packed.getvalue()}
        (address,) = free_addresses(1)
        self.run: dict[str, Any] = {
            "role": "active" if name == "bank" else "passive",
            "party": name,
            "run_id": "q3",
            "schema": "schema.yaml",
            "secret_key": f"keys/{name}.secret",
            "timeout": 0.5,
            "wait": 0.05,
            "report": False,
            "align": {"method": "prealigned", "duplicates": "refuse"},
        }
        theirs = {"name": peer, "public_key": f"keys/{peer}.public"}
        if name == "bank":
            self.run |= {"listen": address, "passive": [theirs], "model": {"n_estimators": 2, "max_depth": 3}}
        else:
            budget = {"epsilon": 5.0, "category_epsilon": 9.0, "per_record": 80.0}
            desensitize = {"mechanism": "adj", "theta": 20, "alpha": 2.0, "epsilon": 0.2, "domain_size": 100}
            self.run |= {"connect": address, "active": theirs, "desensitize": desensitize, "ledger": {"budget": budget}}

    def write(self, data: str = "data.csv") -> Path:
        """Sound files."""
        shutil.rmtree(self.path / "runs", ignore_errors=True)
        (self.path / "schema.yaml").write_bytes(self.schema)
        (self.path / data).write_bytes(self.data[data])
        (self.path / "run.yaml").write_text(yaml.safe_dump({**self.run, "data": data}, sort_keys=False))
        return self.path / "run.yaml"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Party]:
    root = tmp_path_factory.mktemp("sample")
    found = {name: Party(root, name, peer) for name, peer in (("bank", "retailer"), ("retailer", "bank"))}
    for name, peer in (("bank", "retailer"), ("retailer", "bank")):
        shutil.copyfile(root / peer / f"keys/{peer}.public", root / name / f"keys/{peer}.public")
    return found


@contextmanager
def limited() -> Iterator[None]:
    """Whatever takes longer hangs."""

    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"still at it after {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def told_by_party(path: Path) -> str | None:
    try:
        run = read_any_run(path)
        prepare_active(run, path) if isinstance(run, ActiveRun) else prepare_passive(run, path)
    except EXPECTED_ERRORS as error:
        return str(error)
    return None


def check(path: Path) -> str:
    """Both say the same, in one sentence."""
    with limited():
        sentence = told_by_party(path)
        findings = examine(path, wait_s=0.01)
    problems = [one for one in findings if one.status is Status.PROBLEM]
    for one in (sentence or "", *(one.sentence for one in findings)):
        assert "\n" not in one
        assert len(one) < 2000
    assert (sentence is not None) == any(one.check not in FURTHER for one in problems), (sentence, problems)
    return "fine" if sentence is None else "refused"


KINDS: dict[str, tuple[str, str, Callable[[bytes, random.Random], bytes]]] = {
    "bytes of CSV": ("data.csv", "data.csv", flipped),
    "cells of CSV": ("data.csv", "data.csv", with_other_cells),
    "bytes of gz": ("data.csv.gz", "data.csv.gz", flipped),
    "bytes of Parquet": ("data.parquet", "data.parquet", flipped),
    "bytes of a schema": ("data.csv", "schema.yaml", flipped),
    "values of a schema": ("data.csv", "schema.yaml", with_other_values),
    "bytes of a run file": ("data.csv", "run.yaml", flipped),
    "values of a run file": ("data.csv", "run.yaml", with_other_values),
}


@pytest.mark.parametrize("party", ["bank", "retailer"])
def test_the_sample_is_sound(sample: dict[str, Party], party: str) -> None:
    for data in sample[party].data:
        assert check(sample[party].write(data)) == "fine"


def test_a_doctor_that_sees_less_than_its_party_would_be_noticed(
    sample: dict[str, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sample["retailer"].write()
    (path.parent / "data.csv").write_bytes(with_other_cells(sample["retailer"].data["data.csv"], random.Random(1)))
    assert check(path) == "refused"
    monkeypatch.setattr("tests.faults.test_damaged_inputs.examine", lambda path, wait_s: [])
    with pytest.raises(AssertionError):
        check(path)


@pytest.mark.parametrize("party", ["bank", "retailer"])
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_inputs_are_fine_or_one_sentence_from_party_and_doctor_alike(
    sample: dict[str, Party], party: str, kind: str
) -> None:
    data, target, damage = KINDS[kind]
    site, outcomes, wrong = sample[party], Counter[str](), list[str]()
    for number in range(N_EACH):
        path = site.write(data)
        damaged = damage((site.path / target).read_bytes(), random.Random(f"{SEED} {party} {kind} {number}"))
        (site.path / target).write_bytes(damaged)
        try:
            outcomes[check(path)] += 1
        except Exception as error:
            wrong.append(f"number {number}: {type(error).__name__}: {error}")
    assert wrong == []
    assert outcomes["refused"]


@pytest.mark.parametrize("party", ["bank", "retailer"])
def test_damaged_run_files_that_are_taken_end_a_run_without_a_peer_in_one_sentence(
    sample: dict[str, Party], party: str
) -> None:
    """Paths, names and times that were changed are used beyond the preparing step."""
    site, wrong, n_started = sample[party], list[str](), 0
    train = train_active if party == "bank" else train_passive
    for number in range(6 * N_EACH):
        path = site.write()
        draw = random.Random(f"{SEED} {party} {number}")
        damage = draw.choice((flipped, with_other_values))
        path.write_bytes(damage(path.read_bytes(), draw))
        if told_by_party(path) is not None or (run := read_any_run(path)).wait > 1 or run.timeout > 1 or run.engine:
            continue
        n_started += 1
        try:
            with limited():
                train(path, insecure=False, terminal=Terminal())
        except EXPECTED_ERRORS as error:
            is_sentence = "\n" not in str(error)
        except Exception as error:
            is_sentence = False
            wrong.append(f"{type(error).__name__}: {error}")
        else:
            is_sentence = False
        if not is_sentence:
            wrong.append(f"number {number}")
    assert wrong == []
    assert n_started
