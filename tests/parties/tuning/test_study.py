"""Trials on kept ranks: journal, score on records that none has seen, pruning, processes."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from optuna.storages.journal import JournalFileBackend
from typer.testing import CliRunner

from opboost.errors import ParameterError
from opboost.fitting.noised_table import NoiseChoice
from opboost.fitting.recipe import NOISE_DEFAULTS, OWN_DEFAULTS
from opboost.trees.boosting import RoundReport
from parties.cli import app
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun
from parties.errors import ConfigError, RunFolderError
from parties.runs.run_folder import RunFolder
from parties.tuning import study
from parties.tuning.result import Tuned
from parties.tuning.study import Tuning, tune_parameters
from parties.vertical.party_a import grow_trees
from tests.support.processes import Command, finish
from tests.support.score_services import until


@pytest.fixture(scope="module")
def tuned(run_file: Path) -> Tuned:
    return tune_parameters(Tuning(run_file=run_file, n_trials=4, rounds=12))


def test_the_best_trial_is_scored_on_records_that_none_has_seen(tuned: Tuned, tuned_bank: Any) -> None:
    assert tuned.metric == "logloss"
    assert len(tuned.scores) == 4
    assert tuned.ledger_lines == 0
    assert "post-processing" in tuned.words
    assert 1 <= tuned.parameters["n_estimators"] <= 12
    kept = json.loads((tuned_bank.run_folder / "tuning" / "best.json").read_text())
    assert kept["best"] == tuned.best
    assert kept["parameters"] == tuned.parameters


def test_the_journal_is_gone_on_with_and_for_its_owner_alone(tuned: Tuned, tuned_bank: Any, run_file: Path) -> None:
    path = tuned_bank.run_folder / "tuning" / "trials.jsonl"
    assert path.stat().st_mode & 0o077 == 0
    before = path.read_text()
    again = tune_parameters(Tuning(run_file=run_file, n_trials=5, rounds=12))
    assert again.scores[:4] == tuned.scores
    assert len(again.scores) == 5
    assert path.read_text().startswith(before)


def test_a_line_that_a_full_disk_cut_off_costs_no_trial(tuned: Tuned, tuned_bank: Any, run_file: Path) -> None:
    """The next line was written behind it, and all trials were lost with a damaged file."""
    path = tuned_bank.run_folder / "tuning" / "trials.jsonl"
    before = path.read_bytes()
    path.write_bytes(before + b'{"op_code":6,"worker_id":"ab')
    again = tune_parameters(Tuning(run_file=run_file, n_trials=6, rounds=12))
    assert again.scores[:4] == tuned.scores
    assert len(again.scores) == 6
    assert path.read_bytes().startswith(before)


def test_a_lock_that_was_left_in_a_folder_that_was_moved_holds_nobody_up(
    tuned: Tuned, tuned_bank: Any, run_file: Path, tmp_path: Path
) -> None:
    """It leads to where the journal was. Optuna looked at it without end, and without a pause."""
    lock = tuned_bank.run_folder / "tuning" / "trials.jsonl.lock"
    lock.symlink_to(tmp_path / "runs" / "spring" / "tuning" / "trials.jsonl")
    call = Command("tune", str(run_file), "--trials", "4", "--rounds", "12")
    ((code, _, error),) = finish(call, seconds=60)
    assert (code, error) == (0, "")
    assert not lock.is_symlink()


def drawn(tuned_bank: Any) -> dict[int, dict[str, float]]:
    """The parameters of every trial of the journal."""
    found: dict[int, dict[str, float]] = {}
    for line in (tuned_bank.run_folder / "tuning" / "trials.jsonl").read_text().splitlines():
        if (entry := json.loads(line)).get("param_name"):
            found.setdefault(entry["trial_id"], {})[entry["param_name"]] = entry["param_value_internal"]
    return found


@pytest.fixture
def own_journal(tuned_bank: Any) -> Iterator[None]:
    """No trial yet; those of other tests come back."""
    path = tuned_bank.run_folder / "tuning" / "trials.jsonl"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    before = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    yield
    path.write_bytes(before)


def test_later_calls_draw_other_trials(own_journal: None, tuned_bank: Any, run_file: Path) -> None:
    for n_trials in (3, 5, 7):
        tune_parameters(Tuning(run_file=run_file, n_trials=n_trials, rounds=3))
    trials = drawn(tuned_bank).values()
    assert len(trials) == len({tuple(one.items()) for one in trials}) == 7


def test_the_own_parameters_are_tried_anew_where_that_was_interrupted(
    own_journal: None, tuned_bank: Any, run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr("parties.tuning.study.grow_trees", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tune_parameters(Tuning(run_file=run_file, n_trials=2, rounds=3))
    for n_trials in (2, 3):
        tuned = tune_parameters(Tuning(run_file=run_file, n_trials=n_trials, rounds=3))
    trials = drawn(tuned_bank)
    assert [number for number, one in trials.items() if one == trials[0]] == [0, 1]
    assert len(tuned.scores) == 3


def test_a_journal_without_the_rounds_of_its_best_trial_is_told(tuned: Tuned, tuned_bank: Any, run_file: Path) -> None:
    """It ended in a traceback, of a key that was not there."""
    path = tuned_bank.run_folder / "tuning" / "trials.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"rounds"', b'"rgunds"'))
    try:
        with pytest.raises(RunFolderError, match=r"trials\.jsonl is damaged; remove it"):
            tune_parameters(Tuning(run_file=run_file, n_trials=4, rounds=12))
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "damage", [b'{"op_code": 4, "worker_id', b"\xff\xfe\x00\x80\n", b"[" * 100_000 + b"\n", b"[1]\n"]
)
def test_a_damaged_journal_is_told(tuned: Tuned, tuned_bank: Any, run_file: Path, damage: bytes) -> None:
    path = tuned_bank.run_folder / "tuning" / "trials.jsonl"
    whole = path.read_bytes()
    path.write_bytes(damage + whole)
    try:
        with pytest.raises(RunFolderError, match=r"trials\.jsonl is damaged; remove it"):
            tune_parameters(Tuning(run_file=run_file, n_trials=5, rounds=12))
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("n_lines", [0, 4, 12])
def test_a_full_disk_is_one_sentence_and_costs_no_finished_trial(
    tuned: Tuned, tuned_bank: Any, run_file: Path, monkeypatch: pytest.MonkeyPatch, n_lines: int
) -> None:
    """It ended in a traceback, of an assertion of Optuna's."""
    n_left = iter(range(n_lines))

    def append(self: JournalFileBackend, logs: list[dict[str, Any]]) -> None:
        if next(n_left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        as_ever(self, logs)

    as_ever = JournalFileBackend.append_logs
    monkeypatch.setattr(JournalFileBackend, "append_logs", append)
    with pytest.raises(RunFolderError, match=r"trials\.jsonl cannot be written: No space left on device\. The trials"):
        tune_parameters(Tuning(run_file=run_file, n_trials=20, rounds=12))
    monkeypatch.undo()
    again = tune_parameters(Tuning(run_file=run_file, n_trials=4, rounds=12))
    assert again.scores[:4] == tuned.scores


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_journal_is_one_sentence(
    own_journal: None, tuned_bank: Any, run_file: Path, make: Callable[[Path], None]
) -> None:
    """A folder ended in a traceback, and nobody writes into a pipe."""
    make(path := tuned_bank.run_folder / "tuning" / "trials.jsonl")
    try:
        with pytest.raises(RunFolderError, match=r"trials\.jsonl cannot be written: it is a"):
            tune_parameters(Tuning(run_file=run_file, n_trials=2, rounds=3))
    finally:
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_journal_that_cannot_be_read_is_one_sentence(
    tuned: Tuned, run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that another user of this machine wrote."""
    read = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path.name == "trials.jsonl":
            raise PermissionError(errno.EACCES, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(RunFolderError, match=r"trials\.jsonl cannot be written: Permission denied"):
        tune_parameters(Tuning(run_file=run_file, n_trials=2, rounds=3))


def test_nothing_of_it_reaches_a_log_or_a_ledger(tuned: Tuned, tuned_bank: Any) -> None:
    lines = [json.loads(line) for line in (tuned_bank.run_folder / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["event"] == "finished"
    assert not list(tuned_bank.path.rglob("ledger.sqlite"))


class _OneByOne:
    """A pool of processes that works in this one."""

    def __init__(self, n_jobs: int, **_: Any) -> None:
        assert n_jobs == 2

    def __enter__(self) -> _OneByOne:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Any, *arguments: Any) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(work(*arguments))
        return done


def test_trees_grow_as_in_the_run_and_in_one_with_the_printed_parameters(
    own_journal: None, tuned_bank: Any, run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody chose is set as suits noise there, and was not in trials; early stopping may have ended the run."""
    grown: list[Any] = []
    monkeypatch.setattr(study, "grow_trees", lambda job, *rest: (grown.append(job), grow_trees(job, *rest))[1])
    space = tmp_path / "space.yaml"
    space.write_text("subsample: null\nlearning_rate: null\n")
    tuned = tune_parameters(Tuning(run_file=run_file, n_trials=2, rounds=6, space=space))
    *trials, own, best = grown
    assert len(trials) == 2
    for job in (*trials, best):
        assert "subsample" in job.left_open
        assert not job.left_open & {"n_estimators", "learning_rate", "max_depth"}
        assert tuned.parameters["learning_rate"] == job.parameters.learning_rate
    assert own.left_open == read_run(run_file, ActiveRun).model.left_open
    assert [own.on_round(RoundReport(finished, 9, {})) for finished in (4, 5)] == [False, True]


@pytest.mark.parametrize(
    ("choice", "subsample"),
    [(NoiseChoice.PLAIN, NOISE_DEFAULTS["subsample"]), (NoiseChoice.ALONE, OWN_DEFAULTS["subsample"]), (None, 1.0)],
)
def test_the_first_trial_has_the_parameters_that_the_run_grew_with(
    own_journal: None,
    tuned_bank: Any,
    run_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    choice: NoiseChoice | None,
    subsample: float,
) -> None:
    model = replace(RunFolder(tuned_bank.run_folder).load_joint_model(), choice=choice)
    monkeypatch.setattr(RunFolder, "load_joint_model", lambda folder: model)
    tune_parameters(Tuning(run_file=run_file, n_trials=1, rounds=6))
    assert drawn(tuned_bank)[0]["subsample"] == subsample


def test_a_run_that_continues_a_model_is_not_tuned(run_file: Path) -> None:
    """The earlier trees have seen the records that trials are compared on."""
    other = run_file.with_name("continued.yaml")
    other.write_text(yaml.safe_dump(yaml.safe_load(run_file.read_text()) | {"continue_from": "runs/spring"}))
    with pytest.raises(ConfigError, match="has seen the records that trials are compared on"):
        tune_parameters(Tuning(run_file=other))


def test_processes_share_the_journal(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ones load the compiled loops anew, which takes seconds each."""
    monkeypatch.setattr("parties.tuning.trial_processes.ProcessPoolExecutor", _OneByOne)
    tuned = tune_parameters(Tuning(run_file=run_file, n_trials=4, rounds=5, metric="auc", jobs=2))
    assert sum(score is not None for score in tuned.scores) >= 2
    assert tuned.metric == "auc"


@pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")
def test_processes_end_with_the_call_that_is_killed(own_journal: None, tuned_bank: Any, run_file: Path) -> None:
    """They took no more work, and waited for it for ever, with the labels in their memory."""
    call = Command("tune", str(run_file), "--trials", "1000", "--rounds", "5", "--jobs", "2")
    journal = tuned_bank.run_folder / "tuning" / "trials.jsonl"
    try:
        until(lambda: journal.exists() and "param_name" in journal.read_text(), call)
        children = Path(f"/proc/{call.pid}/task/{call.pid}/children").read_text().split()
        assert len(children) >= 2
    finally:
        call.kill()
    until(lambda: not any(is_running(child) for child in children))


def is_running(process: str) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_trials_that_are_worse_than_the_median_end_early(
    run_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("parties.tuning.study._STARTUP_TRIALS", 1)
    monkeypatch.setattr("parties.tuning.study._WARM_UP_ROUNDS", 0)
    space = tmp_path / "space.yaml"
    space.write_text("learning_rate: [0.001, 1]\nmax_depth: [1, 6]")
    tuned = tune_parameters(Tuning(run_file=run_file, n_trials=14, rounds=10, metric="error", space=space))
    assert any(score is None for score in tuned.scores)


def test_the_command_prints_what_to_train_with(run_file: Path) -> None:
    done = CliRunner().invoke(
        app, ["tune", str(run_file), "--trials", "2", "--rounds", "5", "--metric", "ks", "--format", "json"]
    )
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed["ledger_lines"] == 0
    assert Path(printed["report"]).exists()
    assert {"ks_before", "ks_tuned", "model", "advice"} <= printed.keys()


@pytest.mark.parametrize(("best", "is_kept"), [(0.3584, True), (0.35, False)])
def test_the_command_prints_the_own_parameters_where_no_trial_is_better(
    tuned: Tuned, run_file: Path, monkeypatch: pytest.MonkeyPatch, best: float, is_kept: bool
) -> None:
    found = replace(tuned, own=0.3542, best=best)
    monkeypatch.setattr(study, "tune_parameters", lambda *_, **__: found)
    printed = json.loads(CliRunner().invoke(app, ["tune", str(run_file), "--format", "json"]).stdout)
    own = yaml.safe_load(run_file.read_text())["model"]
    assert printed["advice"].startswith("keep the run's own" if is_kept else "train with the parameters of the best")
    assert printed["model"].keys() == (own if is_kept else tuned.parameters).keys()
    assert not is_kept or printed["model"] == own


def test_whoever_has_no_labels_cannot_tune(tuned_bank: Any, run_file: Path) -> None:
    shop = tuned_bank.path.parent / "shop" / "run.yaml"
    done = CliRunner().invoke(app, ["tune", str(shop)])
    assert done.exit_code != 0
    assert "is of role passive; this command takes a run file of role active" in done.stderr
    with pytest.raises(ParameterError, match="auk"):
        tune_parameters(Tuning(run_file=run_file, metric="auk"))
