"""What a finished run keeps of a release, and nobody else may read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from opboost.split_tests import bind, list_tests
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun
from parties.errors import ConfigError, RunFolderError
from parties.progress import no_progress
from parties.runs.joint_model import release_digests
from parties.runs.run_folder import RunFolder
from parties.tuning.kept_release import read_kept
from parties.vertical.party_a import grow_trees


def test_the_model_grows_again_from_what_was_kept(tuned_bank: Any, run_file: Path) -> None:
    kept = read_kept(read_run(run_file, ActiveRun), run_file, purpose="tuning")
    model = RunFolder(tuned_bank.run_folder).load_joint_model()
    assert release_digests(kept.received) == model.release
    trained = grow_trees(kept.job, (), kept.received, no_progress)
    again = bind(trained, list_tests(trained))
    for ours, theirs in zip(again.trees, model.ensemble.trees, strict=True):
        np.testing.assert_array_equal(ours.values, theirs.values)


def test_what_was_kept_is_for_its_owner_alone(tuned_bank: Any) -> None:
    kept = [tuned_bank.run_folder / "received", *(tuned_bank.run_folder / "received").rglob("*")]
    assert len(kept) > 5
    assert {path.stat().st_mode & 0o077 for path in kept} == {0}
    assert not (tuned_bank.run_folder / "journal").exists()


def test_some_records_alone_are_taken(run_file: Path) -> None:
    kept = read_kept(read_run(run_file, ActiveRun), run_file, purpose="tuning")
    rows = np.array([5, 2, 9])
    some = kept.of_rows(rows)
    np.testing.assert_array_equal(some.job.labels, kept.job.labels[rows])
    np.testing.assert_array_equal(some.received[0].ranks, np.asarray(kept.received[0].ranks[:])[rows])


@pytest.mark.parametrize(
    ("change", "words"),
    [({"label_epsilon": 1.0}, "labels without noise"), ({"run_id": "autumn"}, "holds no ranks; finish the run first")],
    ids=str,
)
def test_runs_that_cannot_be_tuned_on_are_refused(
    tuned_bank: Any, run_file: Path, change: dict[str, Any], words: str
) -> None:
    other = run_file.with_name("other.yaml")
    other.write_text(yaml.safe_dump(yaml.safe_load(run_file.read_text()) | change))
    with pytest.raises((ConfigError, RunFolderError), match=words):
        read_kept(read_run(other, ActiveRun), other, purpose="tuning")


def test_a_run_folder_that_cannot_be_looked_at_is_told(run_file: Path) -> None:
    """As one is that belongs to somebody else."""
    run = read_run(run_file, ActiveRun).model_copy(update={"run_folder": run_file.with_name("n" * 300)})
    with pytest.raises(RunFolderError, match="cannot be read"):
        read_kept(run, run_file, purpose="tuning")


@pytest.mark.parametrize("name", ["rows", "shop.order"])
@pytest.mark.parametrize("damage", [lambda old: b"", lambda old: old[:-7], lambda old: old[:-4] + b"\1" + old[-3:]])
def test_damaged_numbers_of_records_are_told(
    tuned_bank: Any, run_file: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    path = tuned_bank.run_folder / "received" / f"{name}.npy"
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    try:
        with pytest.raises(RunFolderError, match=r"rows\.npy or an order is damaged"):
            read_kept(read_run(run_file, ActiveRun), run_file, purpose="tuning")
    finally:
        path.write_bytes(whole)


def test_other_records_and_damaged_ranks_are_refused(tuned_bank: Any, run_file: Path, tmp_path: Path) -> None:
    shutil.copytree(tuned_bank.path, tmp_path / "bank")
    path = tmp_path / "bank" / "run.yaml"
    ranks = tmp_path / "bank" / "runs" / "spring" / "received" / "from" / "shop" / "0.ranks"
    ranks.write_bytes(bytes(len(ranks.read_bytes())))
    with pytest.raises(RunFolderError, match=r"the ranks of shop in .* are damaged"):
        read_kept(read_run(path, ActiveRun), path, purpose="tuning")
    data = tmp_path / "bank" / "data.csv"
    data.write_text(data.read_text().replace(",1\n", ",0\n", 1))
    with pytest.raises(RunFolderError, match="other records, labels or columns"):
        read_kept(read_run(path, ActiveRun), path, purpose="tuning")
