"""Run files of coordinators and workers: what would not be safe is refused with its fault in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_run, read_schema
from parties.errors import ConfigError
from tests.support.clinics import Clinics


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("hub", {"threshold": 1}, "greater than or equal to 2"),
        ("hub", {"workers": 4}, "more than half of the `workers`"),
        ("hub", {"workers": 2, "threshold": 2}, "must list the 2 workers"),
        ("hub", {"honest": 3}, "no more than these can be promised"),
        ("hub", {"honest": None}, "goes with noise in shares alone"),
        ("hub", {"noise": "aggregator"}, "goes with noise in shares alone"),
        ("hub", {"sgbdt": {"subsample": 0.5}}, "no privacy accounting of sampled records"),
        ("hub", {"objective": "reg:squarederror"}, "public `label_bounds` go with"),
        ("hub", {"label_bounds": [0, 1]}, "public `label_bounds` go with"),
        ("hub", {"mode": "paper", "noise": "aggregator", "honest": None}, "say `noise: workers`"),
        ("hub", {"mode": "paper", "honest": None, "epsilon": float("inf")}, "needs a finite `epsilon`"),
        ("hub", {"recipe": "surprise"}, "training.recipe"),
        ("hub", {"recipe": "dpboost"}, "for which a worker has no privacy accounting"),
        ("hub", {"recipe": "federated", "sgbdt": {}}, "a section `sgbdt`, but the recipe is federated"),
        ("hub", {"federated": {}}, "a section `federated`, but the recipe is recommended"),
        ("hub", {"recipe": "federated", "mode": "paper", "honest": None}, "for comparison in one process"),
        ("hub", {"recipe": "federated", "federated": {"split_candidates": "quantile"}}, "split_candidates"),
        ("w0", {"known_workers": False}, "`peers` go with `known_workers: true`"),
    ],
)
def test_a_run_file_that_would_not_be_safe_is_refused_with_its_fault_in_words(
    tmp_path: Path, name: str, change: dict[str, Any], words: str
) -> None:
    clinics = Clinics(tmp_path, **change)
    kind = CoordinatorRun if name == "hub" else WorkerRun
    with pytest.raises(ConfigError, match="run.yaml: .*" + words.replace("`", "`")):
        read_run(clinics.write(name), kind)


def test_workers_know_each_other_wherever_there_are_keys_unless_all_agree_that_they_do_not(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    assert read_run(clinics.write("hub"), CoordinatorRun).training.known_workers is True
    run = read_run(clinics.write("w0"), WorkerRun)
    assert run.training.known_workers is True
    assert run.terms(read_schema(run.table_schema)[0])["known_workers"] is True
    del clinics.runs["w0"]["peers"]
    with pytest.raises(ConfigError, match="must list the 2 other workers with their public keys; or all agree on"):
        read_run(clinics.write("w0"), WorkerRun)
    for name in ("hub", "w0"):
        del clinics.runs[name]["secret_key"]
    assert read_run(clinics.write("hub"), CoordinatorRun).training.known_workers is False
    assert read_run(clinics.write("w0"), WorkerRun).training.known_workers is False


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"engine": "dask"}, "goes with a section `dask`"),
        ({"dask": {"workers": 2}}, "goes with a section `dask`"),
        ({"engine": "spark"}, "engine"),
    ],
)
def test_run_files_say_what_an_engine_needs(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    clinics = Clinics(tmp_path)
    clinics.runs["w0"] |= change
    with pytest.raises(ConfigError, match=words):
        read_run(clinics.write("w0"), WorkerRun)
