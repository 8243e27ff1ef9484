"""Parties struck anywhere end in the same model, with one charge per column, in time and without a traceback.

The number of trials is that of ``FAULT_TRIALS``, of which so many as ``FAULT_AT_ONCE`` says are on at a time; `make
faults` runs 1,000 and prints a line per class of fault.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from parties.commands.exit_codes import ExitCode
from tests.support.kill_anywhere import CHARGES, HANG_S, MOST_S, SCENES, Fault, Outcome, run_trial

N_TRIALS = int(os.environ.get("FAULT_TRIALS", 6))
N_AT_ONCE = int(os.environ.get("FAULT_AT_ONCE", 3))
SEED = int(os.environ.get("FAULT_SEED", 0))

# Fewer trials print nothing.
MANY = 60


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
    may_differ = kind == "folder" and scene != "pair"
    return "" if may_differ or outcome.model == model else "another model"


def test_a_party_that_is_struck_anywhere_ends_in_the_same_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, scene: str, fault: Fault | None) -> Outcome:
        root = tmp_path / name
        root.mkdir()
        outcome = run_trial(root, scene, fault)
        shutil.rmtree(root)
        return outcome

    found, wrong = defaultdict[str, list[Outcome]](list), list[str]()
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        plain = dict(zip(SCENES, pool.map(lambda scene: run(scene, scene, None), SCENES), strict=True))
        assert {scene: fault_of(one, one.model, scene) for scene, one in plain.items()} == dict.fromkeys(SCENES, "")
        faults = [Fault.drawn(seed) for seed in range(SEED, SEED + N_TRIALS)]
        outcomes = pool.map(lambda each: run(str(each[0]), each[1].scene, each[1]), enumerate(faults, SEED))
        for seed, (fault, outcome) in enumerate(zip(faults, outcomes, strict=True), SEED):
            found[f"{fault.scene}, {fault.kind}"].append(outcome)
            if sentence := fault_of(outcome, plain[fault.scene].model, fault.scene, fault.kind):
                wrong.append(f"seed {seed}, {fault}: {sentence}")
                if N_TRIALS >= MANY:
                    with capsys.disabled():
                        print(wrong[-1], flush=True)  # noqa: T201
    with capsys.disabled():
        if N_TRIALS >= MANY:
            print(f"{N_TRIALS} trials from seed {SEED} on, {len(wrong)} of them wrong")  # noqa: T201
        for kind, ended in sorted(found.items()) if N_TRIALS >= MANY else ():
            n_struck, longest_s = sum(one.n_blows > 0 for one in ended), max(one.seconds for one in ended)
            print(f"{kind}: {len(ended)} trials, {n_struck} struck, at most {longest_s:.1f} s")  # noqa: T201
    assert wrong == []


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
