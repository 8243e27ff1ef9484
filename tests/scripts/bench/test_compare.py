"""The comparison of two runs of the benchmarks flags what is beyond noise, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "bench" / "compare.py"


def _compare(folder: Path, old: list[dict[str, object]], new: list[dict[str, object]]) -> tuple[int, str]:
    for name, lines in (("old", old), ("new", new)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, SCRIPT, folder / "old.jsonl", folder / "new.jsonl"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    return done.returncode, done.stdout


def _runs(*seconds: float, **others: object) -> list[dict[str, object]]:
    return [{"bench": "core", "case": "first", "seconds": s, "auc": 0.8, **others} for s in seconds]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ((1.0, 1.1, 1.2), (1.5, 1.6, 1.7), 1),
        ((1.0, 1.1, 1.2), (1.15, 1.3, 1.5), 0),
        ((1.0, 1.01, 1.02), (1.04, 1.05, 1.06), 0),
        ((1.5, 1.6, 1.7), (1.0, 1.1, 1.2), 0),
        ((1.0,), (1.2,), 0),
        ((1.0,), (1.3,), 1),
    ],
    ids=["slower", "overlapping", "a twentieth slower", "faster", "one run, a fifth slower", "one run, a third slower"],
)
def test_a_figure_is_worse_if_the_runs_are_apart_and_the_medians_differ(
    tmp_path: Path, old: tuple[float, ...], new: tuple[float, ...], code: int
) -> None:
    assert _compare(tmp_path, _runs(*old), _runs(*new))[0] == code


def test_what_became_worse_is_named_with_its_factor(tmp_path: Path) -> None:
    _, text = _compare(tmp_path, _runs(1.0), _runs(2.0))
    assert "worse: core first: seconds 1 -> 2 (2.00 x)" in text
    assert "1 figures compared, 1 worse, 0 better; 0 lines are gone" in text


def test_lines_with_other_settings_are_not_compared(tmp_path: Path) -> None:
    code, text = _compare(tmp_path, _runs(1.0, threads=1, epsilon=0.1), _runs(9.0, threads=2, epsilon=0.1))
    assert code == 0
    assert "0 figures compared" in text
    assert "1 lines are gone" in text


def test_quality_and_the_machine_do_not_tell_lines_apart(tmp_path: Path) -> None:
    old, new = _runs(1.0, machine={"load": 0.1}), _runs(1.0, machine={"load": 3.0}, auc=0.7)
    assert "1 figures compared, 0 worse" in _compare(tmp_path, old, new)[1]
