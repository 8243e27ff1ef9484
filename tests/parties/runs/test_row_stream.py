"""What a finished run leaves for one that goes on from it; anything else is refused in a sentence."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.horizontal.rows.stream import Arrival
from opboost.trees.losses import SquaredError
from opboost.trees.tree import Ensemble, Feature, Tree
from parties.errors import RunFolderError
from parties.runs.model_share import TREES_FILE
from parties.runs.row_stream import RowStream, lasting_digest, terms_digest
from parties.runs.run_folder import RunFolder

STREAM = RowStream(run="spring", terms="ab", noise=(1.5, 0.1), rows="cd", arrivals=(Arrival(80, 0), Arrival(90, 1)))


def ensemble(*leaves: float) -> Ensemble:
    trees = tuple(
        Tree(
            columns=np.array([-1], np.int32),
            thresholds=np.zeros(1),
            missing_left=np.zeros(1, bool),
            lefts=np.zeros(1, np.int32),
            rights=np.zeros(1, np.int32),
            values=np.array([leaf]),
            gains=np.zeros(1),
            covers=np.zeros(1),
        )
        for leaf in leaves
    )
    return Ensemble(trees, np.zeros(1), SquaredError(), (Feature("x"),))


def folder_with(path: Path, **meta: Any) -> RunFolder:
    folder = RunFolder(path)
    folder.write_json("meta.json", {"role": "worker", "finished": "now", **meta})
    folder.save_ensemble(ensemble(1.0, 2.0))
    folder.save_ensemble(ensemble(0.5, 1.0), TREES_FILE)
    return folder


def test_what_a_run_left_is_read_again(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, stream=STREAM.facts)
    assert RowStream.of(folder, "worker") == STREAM
    training = STREAM.training(folder)
    assert [tree.values[0] for tree in training.trees] == [0.5, 1.0]
    assert [tree.values[0] for tree in training.model.trees] == [1.0, 2.0]
    assert (training.run, training.arrivals) == ("spring", STREAM.arrivals)
    digest = training.digest
    folder.save_ensemble(ensemble(1.0, 2.0 + 2**-50))
    assert STREAM.training(folder).digest != digest
    without = {name: fact for name, fact in STREAM.facts.items() if name != "digest"}
    folder.write_json("meta.json", {"role": "worker", "finished": "now", "stream": without})
    assert RowStream.of(folder, "worker") == STREAM
    (tmp_path / TREES_FILE).unlink()
    at_hub = RowStream(run="spring", terms="ab", noise=(1.5, 0.1))
    assert at_hub.training(folder).trees == ()
    # Of the recommended recipe nobody pays again, so there are no such trees.
    recommended = RowStream(run="spring", terms="ab", rows="cd", arrivals=STREAM.arrivals, n_records=300)
    folder.write_json("meta.json", {"role": "worker", "finished": "now", "stream": recommended.facts})
    assert RowStream.of(folder, "worker") == recommended
    training = recommended.training(folder)
    assert (training.trees, training.n_records, training.n_rows) == ((), 300, 90)


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"finished": None, "stream": STREAM.facts}, "holds no finished run to go on from"),
        ({}, r"one of `recipe: recommended` or `sgbdt` on rows in one file, and of this role \(worker\)"),
        ({"role": "coordinator", "stream": STREAM.facts}, "of this role"),
        ({"stream": {**STREAM.facts, "arrivals": [[1]]}}, "is malformed"),
        ({"stream": 3}, "is malformed"),
        (
            {"stream": {**STREAM.facts, "arrivals": [{"n_rows": 80, "n_trees": 1}, {"n_rows": 90, "n_trees": 1}]}},
            "its digest is another one. Bring a copy of it back",
        ),
        ({"stream": {**STREAM.facts, "arrivals": []}}, "its digest is another one"),
        ({"stream": {**STREAM.facts, "digest": None}}, "its digest is another one"),
        ({"stream": {**asdict(STREAM), "rows": ""}}, "is malformed"),
    ],
)
def test_folders_from_which_none_can_go_on_are_refused(tmp_path: Path, meta: dict[str, Any], words: str) -> None:
    folder = folder_with(tmp_path, **meta)
    with pytest.raises(RunFolderError, match=words):
        RowStream.of(folder, "worker")
    with pytest.raises(RunFolderError, match="no finished run"):
        RowStream.of(RunFolder(tmp_path / "absent"), "worker")


def test_other_trees_than_the_models_are_refused(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, stream=STREAM.facts)
    folder.save_ensemble(ensemble(0.5), TREES_FILE)
    with pytest.raises(RunFolderError, match="has other trees than the model"):
        STREAM.training(folder)


@pytest.mark.parametrize("name", ["model.json", TREES_FILE])
def test_a_file_with_which_the_run_did_not_end_is_refused(tmp_path: Path, name: str) -> None:
    """As many trees, of another run: records would have paid less than they did."""
    folder = folder_with(tmp_path, stream=STREAM.facts)
    folder.finish()
    STREAM.check_account(folder)
    assert len(STREAM.training(folder).trees) == 2
    folder.save_ensemble(ensemble(0.25, 0.5), name)
    with pytest.raises(RunFolderError, match=f"^{name} in .* not as at the end of the run"):
        STREAM.training(folder)


@pytest.mark.parametrize("shares", [{}, {"shares": {"model.json": "ab"}}, {"shares": 3}])
def test_an_account_by_trees_of_which_no_digest_was_noted_is_refused(tmp_path: Path, shares: dict[str, Any]) -> None:
    folder = folder_with(tmp_path, stream=STREAM.facts, **shares)
    with pytest.raises(RunFolderError, match=f"noted no digest of {TREES_FILE}: .* Nothing was sent"):
        STREAM.check_account(folder)
    # A coordinator has no records, and no such file.
    RowStream(run="spring", terms="ab", noise=(1.5, 0.1)).check_account(folder)


def test_terms_have_one_digest_in_any_order() -> None:
    assert terms_digest({"a": 1, "b": 2}) == terms_digest(json.loads('{"b": 2, "a": 1}')) != terms_digest({"a": 1})


def test_the_number_of_records_is_a_term_of_a_run_but_not_of_those_that_go_on() -> None:
    """Sizes and noise follow from it."""
    few, many = ({"a": 1, "recommended.records": n} for n in (10, 10_000))
    assert terms_digest(few) != terms_digest(many)
    assert lasting_digest(few) == lasting_digest(many) != lasting_digest({"a": 2})
