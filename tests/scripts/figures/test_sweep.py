"""A sweep trains what its configuration lists, goes on where it stopped, and draws what it has."""

from __future__ import annotations

import importlib.util
import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

FIGURES = Path(__file__).parents[3] / "scripts" / "figures"

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def sweep() -> Any:
    spec = importlib.util.spec_from_file_location("sweep", FIGURES / "sweep.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        # Annotations are looked up in the module's own entry.
        patch.setitem(sys.modules, "sweep", module)
        spec.loader.exec_module(module)
        module.Sweep.model_rebuild()
    return module


@pytest.fixture
def config(tmp_path: Path) -> Path:
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({"a": draw.random(300), "b": draw.random(300), "town": draw.choice(["x", "y"], 300)})
    frame["y"] = (frame["a"] + frame["b"] + draw.normal(0, 0.2, 300) > 1).astype(int)
    frame.to_csv(tmp_path / "data.csv", index=False)
    document = {
        "title": "Small",
        "data": "data.csv",
        "label": "y",
        "task": "classification",
        "repeats": 2,
        "model": {"n_estimators": 3, "max_depth": 2},
        "bounds": {"b": [0, 1]},
        "curves": [
            {
                "scheme": "opboost",
                "epsilon": [0.1, 1.0],
                "grid": {"mechanism": ["global", "local"]},
                "settings": {"domain_size": 20, "theta": 5},
            },
            {
                "scheme": "dpboost",
                "epsilon": [4.0],
                "settings": {"bounds": {"a": [0, 1], "b": [0, 1], "town": [0, 1]}, "n_estimators": 2},
            },
        ],
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(document))
    return tmp_path / "small.yaml"


def start(sweep: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setattr("sys.argv", ["sweep.py", str(config)])
    sweep.main()
    return [json.loads(line) for line in config.with_suffix(".results.jsonl").read_text().splitlines()]


def test_every_combination_is_trained_once_per_repeat_and_drawn(
    sweep: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = start(sweep, config, monkeypatch)
    assert len(lines) == 2 * (2 + 4 + 1)
    assert all(0 <= line["score"] <= 1 for line in lines)
    by_name = {line["run"].get("name"): line["score"] for line in lines}
    assert by_name["without privacy"] > by_name["the active party alone"]
    drawn = config.with_suffix(".svg").read_text()
    texts = [one.text for one in ET.fromstring(drawn.split("?>", 1)[1]).iter() if one.tag.endswith("text")]
    for label in ("without privacy", "the active party alone", "global, loss 1 epsilon", "local, cells published"):
        assert label in texts


def test_a_sweep_goes_on_where_it_stopped(sweep: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, results = start(sweep, config, monkeypatch), config.with_suffix(".results.jsonl")
    drawn = config.with_suffix(".svg").read_text()
    kept = results.read_text().splitlines()[:-3]
    results.write_text("\n".join(kept) + "\n")
    again = start(sweep, config, monkeypatch)
    assert [(line["run"], line["score"]) for line in again] == [(line["run"], line["score"]) for line in lines]
    assert config.with_suffix(".svg").read_text() == drawn
    assert results.read_text().splitlines()[: len(kept)] == kept


def test_results_of_another_model_are_not_drawn(sweep: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = start(sweep, config, monkeypatch)
    config.write_text(config.read_text().replace("max_depth: 2", "max_depth: 1"))
    assert len(start(sweep, config, monkeypatch)) == 2 * len(before)


@pytest.mark.parametrize("name", ["adult", "power_plant"])
def test_the_figures_of_the_readme_have_their_configurations(sweep: Any, name: str) -> None:
    found = sweep.Sweep.model_validate(yaml.safe_load((FIGURES / f"{name}.yaml").read_text()))
    drawn = FIGURES / f"{name}.svg"
    assert found.repeats >= 3
    assert drawn.stat().st_size < 150_000
    assert found.title in drawn.read_text()


def test_a_key_that_stands_twice_is_refused(
    sweep: Any, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text() + "repeats: 9\n")
    with pytest.raises(SystemExit, match="2"):
        start(sweep, config, monkeypatch)
    assert "the key 'repeats' stands in line" in capsys.readouterr().err
    assert not config.with_suffix(".results.jsonl").exists()
