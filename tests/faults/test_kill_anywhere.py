"""Parties struck anywhere end in the same model, with one charge per column, in time and without a traceback.

`make faults` runs 1,000 trials, prints a line per class of fault, and keeps every trial in a file, by which a run that
was interrupted goes on; the variables below divide it otherwise.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from parties.commands.exit_codes import ExitCode
from tests.support.kill_anywhere import CHARGES, HANG_S, MOST_S, PLACES, SCENES, TURNS, Fault, Outcome, run_trial

# Trials, the first one's seed, how many are on at a time, and a file that keeps how each ended.
N_TRIALS = int(os.environ.get("FAULT_TRIALS", 6))
SEED = int(os.environ.get("FAULT_SEED", 0))
N_AT_ONCE = int(os.environ.get("FAULT_AT_ONCE", 3))
RECORD = os.environ.get("FAULT_RECORD")

# Fewer trials print nothing.
MANY = 60


@dataclass(frozen=True, slots=True)
class Trial:
    """How a trial ended: what is wrong with it, its seconds, and how often somebody was struck."""

    seed: int
    scene: str
    kind: str
    wrong: str
    seconds: float
    n_blows: int


def fault_of(outcome: Outcome, model: str, scene: str, kind: str = "") -> str:
    """What is wrong with how a trial ended; empty if nothing is.

    Whoever lost its run folder ends with a sentence and is not charged again: with it went the order in which ranks
    travelled, or the key of noise, without which nothing may be answered again. A pair that goes on has the same model.
    """
    if outcome.tracebacks:
        return f"a traceback: {outcome.tracebacks.splitlines()[-1]}"
    if outcome.seconds > MOST_S or outcome.still_s > HANG_S:
        return f"{outcome.seconds:.0f} s, of which nothing happened for {outcome.still_s:.0f} s"
    if kind == "folder" and any(outcome.codes):
        is_over = outcome.charges > CHARGES[scene] or not outcome.errors
        return f"{outcome.charges} charges; {outcome.errors or 'no sentence'}" if is_over else ""
    if any(outcome.codes):
        return f"exit codes {outcome.codes}: {outcome.errors}"
    if outcome.charges != CHARGES[scene]:
        return f"{outcome.charges} charges where {CHARGES[scene]} are due"
    if kind == "full" and outcome.first_code not in (None, 0, ExitCode.STORAGE):
        return f"exit code {outcome.first_code} of a full disk"
    may_differ = kind == "folder" and scene not in ("pair", "corrected")
    return "" if may_differ or outcome.model == model else "another model"


def by_class(trials: Sequence[Trial]) -> list[str]:
    """A line per class of fault, and one for all."""
    found = defaultdict[str, list[Trial]](list)
    for one in trials:
        found[f"{one.scene}, {one.kind}"].append(one)
    lines = [
        f"{name}: {len(ended)} trials, {sum(one.n_blows > 0 for one in ended)} struck, "
        f"{sum(bool(one.wrong) for one in ended)} wrong, at most {max(one.seconds for one in ended):.1f} s"
        for name, ended in sorted(found.items())
    ]
    return [*lines, f"{len(trials)} trials, {sum(bool(one.wrong) for one in trials)} wrong"]


class Trials:
    """Trials against the same scenes without a fault."""

    def __init__(self, root: Path, record: Path | None) -> None:
        self._root, self._record = root, record
        self._models: dict[str, str] = {}
        self._writes = threading.Lock()
        lines = record.read_text().splitlines() if record is not None and record.exists() else []
        self.kept = {one.seed: one for one in (Trial(**json.loads(line)) for line in lines)}

    def run(self, seeds: Sequence[int]) -> Iterator[Trial]:
        """Run the trials of these seeds, except those that were kept, each of which comes as it was kept."""
        due = {seed: Fault.drawn(seed) for seed in seeds if seed not in self.kept}
        with ThreadPoolExecutor(N_AT_ONCE) as pool:
            scenes = sorted({fault.scene for fault in due.values()})
            self._models = dict(zip(scenes, pool.map(self._plain, scenes), strict=True))
            ended = pool.map(self._struck, due, due.values())
            for seed in seeds:
                yield self.kept[seed] if seed in self.kept else next(ended)

    def _plain(self, scene: str) -> str:
        outcome = self._outcome(scene, scene, None)
        assert fault_of(outcome, outcome.model, scene) == "", scene
        return outcome.model

    def _struck(self, seed: int, fault: Fault) -> Trial:
        outcome = self._outcome(str(seed), fault.scene, fault)
        wrong = fault_of(outcome, self._models[fault.scene], fault.scene, fault.kind)
        trial = Trial(
            seed, fault.scene, fault.kind, wrong and f"seed {seed}, {fault}: {wrong}", outcome.seconds, outcome.n_blows
        )
        if self._record is not None:
            with self._writes, self._record.open("a") as file:
                file.write(json.dumps(asdict(trial)) + "\n")
        return trial

    def _outcome(self, name: str, scene: str, fault: Fault | None) -> Outcome:
        root = self._root / name
        root.mkdir()
        outcome = run_trial(root, scene, fault)
        shutil.rmtree(root)
        return outcome


def test_a_party_that_is_struck_anywhere_ends_in_the_same_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = None if RECORD is None else Path(RECORD)
    ended = list[Trial]()
    for trial in Trials(tmp_path, record).run(range(SEED, SEED + N_TRIALS)):
        ended.append(trial)
        if trial.wrong and N_TRIALS >= MANY:
            with capsys.disabled():
                print(trial.wrong, flush=True)  # noqa: T201
    if N_TRIALS >= MANY:
        with capsys.disabled():
            print(*by_class(ended), sep="\n")  # noqa: T201
    if record is not None:
        record.with_suffix(".txt").write_text(
            "\n".join([*by_class(ended), *filter(None, (one.wrong for one in ended))])
        )
    assert [one.wrong for one in ended if one.wrong] == []


def test_a_run_that_was_interrupted_goes_on_after_the_trials_that_were_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Outcome(codes=(0, 0), errors="", model="m", charges=2, tracebacks="", seconds=1.0, n_blows=1)
    run: list[Fault | None] = []
    monkeypatch.setattr(
        "tests.faults.test_kill_anywhere.run_trial",
        lambda root, scene, fault: run.append(fault) or replace(good, charges=CHARGES[scene]),
    )
    record = tmp_path / "trials.jsonl"
    first = list(Trials(tmp_path, record).run(range(3)))
    assert (len(first), len(run)) == (3, 3 + 3)
    run.clear()
    again = list(Trials(tmp_path, record).run(range(5)))
    assert [one.seed for one in again] == list(range(5))
    assert again[:3] == first
    assert {fault for fault in run if fault is not None} == {Fault.drawn(3), Fault.drawn(4)}
    assert by_class(again)[-1] == "5 trials, 0 wrong"


def test_all_kinds_of_faults_strike_all_scenes() -> None:
    drawn = [Fault.drawn(seed) for seed in range(1000)]
    assert {(one.scene, one.kind) for one in drawn} == {(scene, kind) for scene in SCENES for kind in PLACES}
    of_sample = {(one.scene, one.kind) for one in drawn[:MANY]}
    assert len(of_sample) == len(TURNS) * len(PLACES)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tracebacks": "Traceback\nValueError"}, "a traceback: ValueError"),
        ({"codes": (0, 1), "errors": "lost"}, "exit codes (0, 1): lost"),
        ({"seconds": MOST_S + 1}, "901 s, of which nothing happened for 0 s"),
        ({"still_s": HANG_S + 1}, "1 s, of which nothing happened for 91 s"),
        ({"charges": 4}, "4 charges where 2 are due"),
        ({"charges": 1}, "1 charges where 2 are due"),
        ({"model": "other"}, "another model"),
    ],
)
def test_every_bad_end_is_told(changes: dict[str, object], sentence: str) -> None:
    good: dict[str, Any] = {
        "codes": (0, 0),
        "errors": "",
        "model": "m",
        "charges": 2,
        "tracebacks": "",
        "seconds": 1.0,
        "n_blows": 1,
    }
    assert fault_of(Outcome(**good), "m", "pair") == ""
    assert fault_of(Outcome(**{**good, **changes}), "m", "pair", "full") == sentence
    if "codes" not in changes:
        assert fault_of(Outcome(**{**good, **changes}), "m", "pair", "folder") == sentence
    full = Outcome(**good, first_code=1)
    assert fault_of(full, "m", "pair", "full") == "exit code 1 of a full disk"


def test_an_owner_that_lost_its_run_folder_ends_with_a_sentence_and_no_second_charge() -> None:
    end: dict[str, Any] = {"codes": (0, 6), "model": "", "tracebacks": "", "seconds": 1.0, "n_blows": 1}
    assert fault_of(Outcome(**end, errors="gone", charges=2), "m", "chain", "folder") == ""
    assert fault_of(Outcome(**end, errors="", charges=2), "m", "chain", "folder") == "2 charges; no sentence"
    assert fault_of(Outcome(**end, errors="x", charges=4), "m", "chain", "folder") == "4 charges; x"
