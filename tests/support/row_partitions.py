"""A table in one file and in partitions, and the trainings that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from parties.config.horizontal import TrainingSection
from parties.config.reading import read_schema
from parties.config.recipes import SummedRecipe, make_recipe
from parties.horizontal.partition_files import PartFile, part_files
from parties.horizontal.row_partitions import PartedRows, Parts

COLUMNS = ("age", "dose", "size")
SCHEMA = {"id": "id", "label": "y", "columns": {name: {"lower": 0, "upper": 1} for name in COLUMNS}}
SIZES = (0, 180, 1, 0, 59)
SHARED: dict[str, Any] = {"noise": "workers", "honest": 2}
TRUSTED: dict[str, Any] = {"noise": "aggregator", "honest": None}
SMALL = {"n_estimators": 3, "max_depth": 2}
TRAININGS: dict[str, dict[str, Any]] = {
    "sgbdt": {**SHARED, "sgbdt": SMALL},
    "sgbdt with a filter": {**SHARED, "epsilon": 60.0, "sgbdt": {**SMALL, "n_extra_estimators": 3}},
    "tr": {**SHARED, "recipe": "federated", "federated": {**SMALL, "batch_size": 2}},
    "tr, refined": {
        **TRUSTED,
        "recipe": "federated",
        "federated": {**SMALL, "split_candidates": "ih", "batch_size": 2},
    },
    "hist": {**TRUSTED, "recipe": "federated", "federated": {**SMALL, "split_method": "hist"}},
    "recommended": {**SHARED, "recipe": "recommended", "recommended": {**SMALL, "records": 240}},
    "pr": {**TRUSTED, "recipe": "federated", "federated": {**SMALL, "split_method": "pr", "split_candidates": "ih"}},
}


def write_rows(folder: Path, sizes: tuple[int, ...] = SIZES) -> None:
    """One table, and the same rows in partitions, in the order of their ids."""
    draw = np.random.default_rng(5)
    X = draw.random((sum(sizes), 3)).round(6)
    frame = pd.DataFrame(X, columns=list(COLUMNS)).assign(y=(X[:, 0] + X[:, 1] > 1).astype(int))
    frame.insert(0, "id", [f"r{i:04}" for i in range(len(X))])
    frame.to_parquet(folder / "all.parquet")
    (folder / "parts").mkdir()
    ends = np.cumsum(sizes)
    for number, (begin, end) in enumerate(zip(ends - sizes, ends, strict=True)):
        frame.iloc[begin:end].to_parquet(folder / "parts" / f"{number}.parquet")
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA, sort_keys=False))


def files(folder: Path) -> list[PartFile]:
    return part_files(folder / "parts", *read_schema(folder / "schema.yaml"), n_classes=2)


def recipe_of(folder: Path, training: dict[str, Any]) -> SummedRecipe:
    section = {"epsilon": 2.0, "delta": 1e-6, "workers": 3, "threshold": 2} | training
    return make_recipe(TrainingSection.model_validate(section), read_schema(folder / "schema.yaml")[0])


def parted(recipe: SummedRecipe, parts: Parts) -> PartedRows:
    return PartedRows(parts, n_bins=recipe.task.grid.axes.n_bins)
