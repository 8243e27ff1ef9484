"""Utility against privacy: train every combination of a grid, several times, and draw the curves with error bars.

    python scripts/figures/sweep.py scripts/figures/adult.yaml

Results go, line by line, into CONFIG.results.jsonl beside the configuration, the drawing into CONFIG.svg. Started
again, it does only what is missing; lines of another data set or model section stay in the file and are not drawn. All
draws are seeded, so that a sweep can be repeated: nothing of it is fit for release.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from sklearn.metrics import r2_score, roc_auc_score

from opboost import (
    DPBoostClassifier,
    DPBoostRegressor,
    FederatedGBDTClassifier,
    FederatedGBDTRegressor,
    InPrivateClassifier,
    InPrivateRegressor,
    OpBoostClassifier,
    OpBoostRegressor,
    SGBDTClassifier,
    SGBDTRegressor,
)
from opboost.mechanism_settings import MechanismSettings
from parties.config.reading import read_section
from parties.errors import ConfigError
from parties.reports.figures import Axis, Series, lines, standalone
from parties.storage.documents import read_yaml

PAIRS: dict[str, tuple[type, type]] = {
    "opboost": (OpBoostClassifier, OpBoostRegressor),
    "sgbdt": (SGBDTClassifier, SGBDTRegressor),
    "dpboost": (DPBoostClassifier, DPBoostRegressor),
    "federated": (FederatedGBDTClassifier, FederatedGBDTRegressor),
    "inprivate": (InPrivateClassifier, InPrivateRegressor),
}


class Curve(BaseModel):
    """One scheme: settings that stay, and lists whose combinations are tried; `epsilon` is the horizontal axis."""

    model_config = ConfigDict(extra="forbid")

    scheme: Literal["opboost", "sgbdt", "dpboost", "federated", "inprivate"]
    epsilon: list[float] = Field(min_length=1)
    settings: dict[str, Any] = {}
    grid: dict[str, list[Any]] = {}


class Sweep(BaseModel):
    """A configuration file. Paths are relative to it."""

    model_config = ConfigDict(extra="forbid")

    title: str
    data: Path
    label: str
    task: Literal["classification", "regression"]
    split: str | None = Field(default=None, description="column that holds train and test")
    test_share: float = 0.2
    rows: int | None = Field(default=None, description="most rows to train on")
    repeats: int = Field(default=3, ge=1)
    model: dict[str, Any] = {}
    bounds: dict[str, tuple[float, float]] = Field(description="the passive party's columns")
    curves: list[Curve]


def main() -> None:
    """Do what is missing, then draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path)
    config = parser.parse_args().config
    try:
        sweep = read_section(Sweep, read_yaml(config))
    except ConfigError as error:
        parser.error(str(error))
    results, drawing = config.with_suffix(".results.jsonl"), config.with_suffix(".svg")
    fixed = sweep.model_dump_json(include={"data", "label", "task", "split", "test_share", "rows", "model", "bounds"})
    basis = hashlib.sha256(fixed.encode()).hexdigest()[:16]
    done = dict(_done(results, basis))
    header = set(pd.read_csv(config.parent / sweep.data, nrows=0).columns)
    wanted = list(_runs(sweep, has_own=bool(header - {*sweep.bounds, sweep.label, sweep.split})))
    missing = [run for run in wanted if _key(run) not in done]
    _train_all(sweep, config.parent, missing, results, basis, done)
    drawing.write_text(standalone(draw(sweep, [(run, done[_key(run)]) for run in wanted])))
    print(f"{len(missing)} of {len(wanted)} runs were missing; the curves are in {drawing}")


def _runs(sweep: Sweep, *, has_own: bool) -> Iterator[dict[str, Any]]:
    """Every combination and repeat, after the references: no privacy, and the active party alone, if it has columns."""
    references = [{"scheme": "opboost", "name": "without privacy", "epsilon": math.inf, "domain_size": 1000}]
    if has_own:
        references.append({"scheme": "opboost", "name": "the active party alone", "without": list(sweep.bounds)})
    for repeat in range(sweep.repeats):
        for reference in references:
            yield {**reference, "repeat": repeat}
        for curve in sweep.curves:
            for values in itertools.product(*curve.grid.values()):
                chosen = dict(zip(curve.grid, values, strict=True))
                for epsilon in curve.epsilon:
                    yield {"scheme": curve.scheme, **curve.settings, **chosen, "epsilon": epsilon, "repeat": repeat}


def _key(run: dict[str, Any]) -> str:
    return json.dumps(run, sort_keys=True)


def _done(results: Path, basis: str) -> Iterator[tuple[str, float]]:
    for line in results.read_text().splitlines() if results.exists() else ():
        found = json.loads(line)
        if found["basis"] == basis:
            yield _key(found["run"]), found["score"]


def _train_all(
    sweep: Sweep, folder: Path, missing: list[dict[str, Any]], results: Path, basis: str, done: dict[str, float]
) -> None:
    if not missing:
        return
    frame = _read(sweep, folder)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar, results.open("a") as lines_out:
        for run in bar.track(missing, description=sweep.title):
            started = time.perf_counter()
            score = train_and_score(sweep, frame, run)
            done[_key(run)] = score
            line = {"run": run, "score": score, "seconds": round(time.perf_counter() - started, 2), "basis": basis}
            lines_out.write(json.dumps(line) + "\n")
            lines_out.flush()


def _read(sweep: Sweep, folder: Path) -> pd.DataFrame:
    """The table with categories as their place in the sorted list."""
    frame = pd.read_csv(folder / sweep.data)
    for name in frame.columns.drop(sweep.split or []):
        if not pd.api.types.is_numeric_dtype(frame[name]):
            frame[name] = frame[name].astype("category").cat.codes.astype(float)
    return frame


def train_and_score(sweep: Sweep, frame: pd.DataFrame, run: dict[str, Any]) -> float:
    """AUC or R^2 on the test rows of one run."""
    draw_rows = np.random.default_rng(run["repeat"])
    order = draw_rows.permutation(len(frame))
    is_test = np.zeros(len(frame), dtype=bool)
    is_test[order[: round(sweep.test_share * len(frame))]] = True
    if sweep.split is not None:
        is_test = (frame[sweep.split] == "test").to_numpy()
    train = order[~is_test[order]][: sweep.rows]
    settings = {key: value for key, value in run.items() if key not in ("scheme", "repeat", "name", "without")}
    without = run.get("without", [])
    features = frame.drop(columns=[sweep.label, *([sweep.split] if sweep.split else []), *without])
    if run["scheme"] == "opboost":
        bounds = {name: pair for name, pair in sweep.bounds.items() if name not in without}
        settings = {**sweep.model, "bounds": bounds, **settings}
    kind = PAIRS[run["scheme"]][sweep.task == "regression"]
    model = kind(**settings, random_state=run["repeat"]).fit(features.iloc[train], frame[sweep.label].iloc[train])
    truth, rows = frame[sweep.label][is_test], features[is_test]
    if sweep.task == "regression":
        return float(r2_score(truth, model.predict(rows)))
    return float(roc_auc_score(truth, model.predict_proba(rows)[:, 1]))


def draw(sweep: Sweep, results: list[tuple[dict[str, Any], float]]) -> str:
    """Mean score against epsilon, a line per combination, with the deviation over the repeats."""
    scores: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    epsilons = sorted({epsilon for curve in sweep.curves for epsilon in curve.epsilon})
    for run, score in results:
        for epsilon in (epsilons[0], epsilons[-1]) if "name" in run else (run["epsilon"],):
            scores[_label(sweep, run)][epsilon].append(score)
    series = []
    for name, points in scores.items():
        xs = tuple(sorted(points))
        spreads = tuple(stdev(points[x]) if len(points[x]) > 1 else 0.0 for x in xs)
        series.append(Series(name, xs, tuple(mean(points[x]) for x in xs), spreads))
    metric = "R^2" if sweep.task == "regression" else "AUC"
    alt = f"{sweep.title}: {metric} on test rows against epsilon, {len(series)} lines, {sweep.repeats} repeats"
    return lines(series, x=Axis(label="epsilon per point", is_log=True), y=Axis(label=f"{metric}, test rows"), alt=alt)


def _label(sweep: Sweep, run: dict[str, Any]) -> str:
    """A combination in a few words; of maps also what epsilon is worth between neighbouring values."""
    if "name" in run:
        return str(run["name"])
    varied = {key for curve in sweep.curves if curve.scheme == run["scheme"] for key in curve.grid}
    words = [str(run.get("mechanism", run["scheme"]))]
    words += [f"{key} {run[key]}" for key in sorted(varied - {"mechanism"}) if key in run]
    if run["scheme"] != "opboost":
        return ", ".join(words)
    if run.get("mechanism") == "local":
        return ", ".join([*words, "cells published"])
    names = ("mechanism", "law", "theta", "alpha", "domain_size")
    settings = MechanismSettings(epsilon=0.1, **{name: run[name] for name in names if name in run})
    return ", ".join([*words, f"loss {settings.build().loss(1) / 0.1:.3g} epsilon"])


if __name__ == "__main__":
    main()
