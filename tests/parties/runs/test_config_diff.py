"""Configuration difference: every changed setting is named, but those that a resumed run may change."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parties.runs.config_diff import MAY_CHANGE, changes

RUN: dict[str, Any] = {
    "party": "bank",
    "timeout": 10,
    "model": {"max_depth": 3, "eval_metric": ["auc", "logloss"]},
    "dask": {"workers": 2, "partition_rows": 10},
    "ledger": {"epsilon": 4.0},
    "passive": [{"name": "shop"}],
    "owners": [{"name": "north", "public_key": "north.public"}, {"name": "west", "connect": "tcp://w:1"}],
}


def difference(folder: Path, before: object, after: object) -> list[str]:
    paths = folder / "before.yaml", folder / "after.yaml"
    for path, document in zip(paths, (before, after), strict=True):
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return changes(*paths)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"party": "shop"}, ["party was bank, is shop"]),
        # A budget may be raised for a run that was refused by it, but no other ledger may be taken.
        ({"ledger": {"epsilon": 5, "delta": 1e-5, "path": "other"}}, ["ledger.path was absent, is other"]),
        ({"ledger": {}}, []),
        ({"seed": 4}, ["seed was absent, is 4"]),
        ({"model": {"max_depth": 4, "eval_metric": ["auc", "logloss"]}}, ["model.max_depth was 3, is 4"]),
        (
            {"model": {"max_depth": 3, "eval_metric": ["logloss"]}},
            ["model.eval_metric.0 was auc, is logloss", "model.eval_metric.1 was logloss, is absent"],
        ),
        # A section without keys is as good as none.
        ({"dask": None}, ["dask.partition_rows was 10, is absent"]),
        ({"passive": [{"name": "post"}]}, ["passive.0.name was shop, is post"]),
        (
            {"owners": [{"name": "north", "connect": "tcp://n:1", "public_key": "n"}, {"name": "west"}]},
            ["owners.0.public_key was north.public, is n"],
        ),
        ({"timeout": 20, "wait": 5, "serve": {"batch_rows": 3}}, []),
        ({"dask": {"workers": 9, "partition_rows": 10}}, []),
        ({"dask": {"workers": 2, "partition_rows": 11}}, ["dask.partition_rows was 10, is 11"]),
    ],
)
def test_a_change_is_named_with_both_values(tmp_path: Path, change: dict[str, Any], expected: list[str]) -> None:
    assert difference(tmp_path, RUN, {**RUN, **change}) == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(keys=st.sets(st.sampled_from(sorted(MAY_CHANGE | {"seed", "party", "dask.folder", "owners.*.name"}))))
def test_exactly_what_may_not_change_is_named(tmp_path: Path, keys: set[str]) -> None:
    after = deepcopy(RUN)
    for key in keys:
        *places, last = key.split(".")
        place: Any = after
        for name in places:
            place = place[1 if name == "*" else name]
        place[last] = "other"
    found = {line.split(" was ")[0] for line in difference(tmp_path, RUN, after)}
    assert found == {key.replace("*", "1") for key in keys - MAY_CHANGE}


def test_what_cannot_be_read_is_a_difference_in_a_word_and_values_are_shown_in_short(tmp_path: Path) -> None:
    assert difference(tmp_path, "a: [", "b: [") == []
    assert "the run file was unreadable, is absent" in difference(tmp_path, "a: [", {"a": 1})
    (line,) = difference(tmp_path, {"note": "xy" * 100}, {"note": 1})
    assert len(line) < 120


def test_values_are_compared_beyond_what_is_shown_of_them(tmp_path: Path) -> None:
    folder = "a" * 60
    (line,) = difference(tmp_path, {"data": f"{folder}/spring.csv"}, {"data": f"{folder}/autumn.csv"})
    assert line.startswith("data was aaa")
