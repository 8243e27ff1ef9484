"""Keys of every role: where the run folder lies, how long is waited, and that every budget is looked at."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from parties.config.data_section import Data
from parties.config.party_run import PartyRun, Wiring
from parties.config.protection import GivenBudget
from parties.errors import ConfigError, RunFolderError

RUN: dict[str, Any] = {"role": "active", "party": "bank", "run_id": "spring", "schema": "schema.yaml"}


class Spender(PartyRun):
    """A run with one budget."""

    epsilon: float

    def budgets(self) -> Iterable[GivenBudget]:
        if self.epsilon < 0:
            raise ConfigError("below zero")
        yield GivenBudget.at("epsilon", self.epsilon)


def test_the_run_folder_is_named_after_the_run_unless_it_is_given() -> None:
    assert PartyRun(**RUN).run_folder == Path("runs/spring")
    assert PartyRun(**RUN, folder="here").run_folder == Path("here")


def test_waiting_is_told_to_channels_in_seconds() -> None:
    timing = PartyRun(**RUN, timeout=3, wait=4, stall=5).timing
    assert (timing.timeout_s, timing.wait_s, timing.stall_s) == (3, 4, 5)


@pytest.mark.parametrize(
    "change",
    [{"timeout": 0}, {"wait": math.inf}, {"stall": 8 * 24 * 3600}, {"party": "../bank"}, {"run_id": ""}, {"colour": 1}],
)
def test_what_cannot_work_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PartyRun(**{**RUN, **change})


@pytest.mark.parametrize(
    ("epsilon", "words"), [(37.0, "protects nothing"), (math.inf, "protects nothing"), (-1.0, "below zero")]
)
def test_a_budget_that_protects_nothing_must_be_asked_for(epsilon: float, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Spender(**RUN, epsilon=epsilon)
    if epsilon > 0:
        assert Spender(**RUN, epsilon=epsilon, no_privacy=True).epsilon == epsilon


def test_addresses_are_those_called_and_the_one_listened_at() -> None:
    assert Wiring((), {"shop": "tcp://a:1"}, "tcp://b:2").addresses == ["tcp://a:1", "tcp://b:2"]
    assert Wiring((), {}, None).addresses == []


def test_no_report_takes_the_place_of_what_a_run_reads_or_keeps(tmp_path: Path) -> None:
    """Whoever named a data file after --out lost it."""
    run = PartyRun(**RUN | {"schema": tmp_path / "schema.yaml", "secret_key": tmp_path / "me.secret"}, folder=tmp_path)
    run_file, link = tmp_path / "run.yaml", tmp_path.parent / f"{tmp_path.name}.html"
    link.symlink_to(run_file)
    (tmp_path / "journal").mkdir()
    for name in ("model.json", "journal/ranks", "report.html", "explanation.json"):
        (tmp_path / name).touch()
    kept = (run_file, link, *(tmp_path / name for name in ("schema.yaml", "me.secret", "model.json", "journal/ranks")))
    for out in kept:
        with pytest.raises(ConfigError, match=r"is what the run reads or keeps; .* Nothing was written"):
            run.check_free(out, run_file)
    for name in ("report.html", "explanation.json", "new.md", "../new.md"):
        run.check_free(tmp_path / name, run_file)


def test_a_place_for_a_report_that_cannot_be_looked_at_is_told(tmp_path: Path) -> None:
    """As one is in a folder of somebody else's, or with too long a name."""
    run = PartyRun(**RUN | {"schema": tmp_path / "schema.yaml"}, folder=tmp_path)
    with pytest.raises(RunFolderError, match="cannot be written"):
        run.check_free(tmp_path / ("n" * 300), tmp_path / "run.yaml")


class Reader(PartyRun):
    """A run with data, and with an earlier run that it goes on from."""

    data: Data
    continue_from: Path | None = None


def test_no_report_takes_the_place_of_a_part_of_the_data(tmp_path: Path) -> None:
    """Of a folder of files, of a pattern, of a file that a database lies in, and of the run that is continued."""
    (tmp_path / "rows").mkdir()
    (tmp_path / "old").mkdir()
    kept = [tmp_path / name for name in ("rows/1.parquet", "crm.db", "old/model.json")]
    for path in kept:
        path.touch()
    database = {"uri": f"sqlite://{tmp_path}/crm.db", "query": "select 1"}
    for data, path in zip(("rows", database, "rows/1.parquet"), kept, strict=True):
        given = {"data": data if isinstance(data, dict) else tmp_path / data, "continue_from": tmp_path / "old"}
        run = Reader.model_validate({**RUN, "schema": tmp_path / "schema.yaml", "folder": tmp_path / "new", **given})
        with pytest.raises(ConfigError, match="is what the run reads or keeps"):
            run.check_free(path, tmp_path / "run.yaml")
        run.check_free(tmp_path / "rows" / "report.html", tmp_path / "run.yaml")
    # What lies there may be a link: another folder's file stays, and the table has none in its place.
    (tmp_path / "rows" / "2.parquet").symlink_to(tmp_path / "schema.parquet")
    (tmp_path / "schema.parquet").touch()
    (tmp_path / "rows" / "[1].parquet").touch()
    named = {"rows": ("1", "2", "[1]"), "rows/*.parquet": ("1", "2", "[1]"), "rows/[1]*.parquet": ("[1]",)}
    for data, names in named.items():
        run = run.model_copy(update={"data": tmp_path / data})
        for name in names:
            with pytest.raises(ConfigError, match="is what the run reads or keeps"):
                run.check_free(tmp_path / "rows" / f"{name}.parquet", tmp_path / "run.yaml")
    # Of a pattern, a * alone is special.
    run.check_free(kept[0], tmp_path / "run.yaml")


class Keeper(PartyRun):
    """A run with a ledger and prepared ids."""

    ledger: Path

    @property
    def kept_files(self) -> dict[str, Path]:
        return {"ledger.path": self.ledger, "align.prepared": self.ledger.with_name("ids.prepared")}


def test_no_report_takes_the_place_of_what_lies_beside_a_ledger(tmp_path: Path) -> None:
    """As its head, which lies beside the file itself and is named by no run file."""
    for name in ("runs", "shared"):
        (tmp_path / name).mkdir()
    (link := tmp_path / "runs" / "people.sqlite").symlink_to(tmp_path / "shared" / "ledger.sqlite")
    run = Keeper(**RUN | {"schema": tmp_path / "schema.yaml"}, folder=tmp_path / "runs" / "spring", ledger=link)
    endings = ("sqlite", "sqlite-wal", "head.json", "sums.json", "served.sqlite")
    kept = [f"shared/{one}" for one in ("held_out.0123.json", *(f"ledger.{ending}" for ending in endings))]
    for name in (*kept, "runs/held_out.0123.json"):
        with pytest.raises(ConfigError, match="is what the run reads or keeps"):
            run.check_free(tmp_path / name, tmp_path / "run.yaml")
    plain = run.model_copy(update={"ledger": tmp_path / "shared" / "people"})
    for ending in ("", "-wal", "-shm", ".head.json"):
        with pytest.raises(ConfigError, match="is what the run reads or keeps"):
            plain.check_free(tmp_path / "shared" / f"people{ending}", tmp_path / "run.yaml")
    for name in ("shared/ids.html", "shared/ledgers.json", "runs/ledger.html", "runs/ids.html", "runs/held_out.html"):
        run.check_free(tmp_path / name, tmp_path / "run.yaml")
