"""Parties struck anywhere end in the same model, with one charge per column, in time and without a traceback.

The number of trials is that of ``FAULT_TRIALS``; `make faults` runs 1,000 and prints a line per class of fault.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.kill_anywhere import MOST_S, PLACES, Fault, Outcome, run_trial

N_TRIALS = int(os.environ.get("FAULT_TRIALS", len(PLACES)))
SEED = int(os.environ.get("FAULT_SEED", 0))

N_COLUMNS = 2


def fault_of(outcome: Outcome, model: str) -> str:
    """What is wrong with how a trial ended; empty if nothing is."""
    if outcome.tracebacks:
        return f"a traceback: {outcome.tracebacks.splitlines()[-1]}"
    if any(outcome.codes):
        return f"exit codes {outcome.codes}: {outcome.errors}"
    if outcome.seconds > MOST_S:
        return f"{outcome.seconds:.0f} s"
    if outcome.charges != N_COLUMNS:
        return f"{outcome.charges} charges for {N_COLUMNS} columns"
    return "" if outcome.model == model else "another model"


def test_a_party_that_is_struck_anywhere_ends_in_the_same_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain").mkdir()
    plain = run_trial(tmp_path / "plain", None)
    assert fault_of(plain, plain.model) == ""
    found, wrong = defaultdict[str, list[Outcome]](list), []
    for seed in range(SEED, SEED + N_TRIALS):
        root, fault = tmp_path / str(seed), Fault.drawn(seed)
        root.mkdir()
        outcome = run_trial(root, fault)
        found[fault.kind].append(outcome)
        if sentence := fault_of(outcome, plain.model):
            wrong.append(f"seed {seed}, {fault}: {sentence}")
    with capsys.disabled():
        for kind, outcomes in sorted(found.items()) if len(PLACES) < N_TRIALS else ():
            n_struck, longest_s = sum(one.n_blows > 0 for one in outcomes), max(one.seconds for one in outcomes)
            print(f"{kind}: {len(outcomes)} trials, {n_struck} struck, at most {longest_s:.1f} s")  # noqa: T201
    assert wrong == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tracebacks": "Traceback\nValueError"}, "a traceback: ValueError"),
        ({"codes": (0, 1), "errors": "lost"}, "exit codes (0, 1): lost"),
        ({"seconds": MOST_S + 1}, "91 s"),
        ({"charges": 4}, "4 charges for 2 columns"),
        ({"model": "other"}, "another model"),
    ],
)
def test_every_bad_end_is_told(changes: dict[str, object], sentence: str) -> None:
    good = {"codes": (0, 0), "errors": "", "model": "m", "charges": 2, "tracebacks": "", "seconds": 1.0, "n_blows": 1}
    assert fault_of(Outcome(**good), "m") == ""  # type: ignore[arg-type]
    assert fault_of(Outcome(**{**good, **changes}), "m") == sentence  # type: ignore[arg-type]
