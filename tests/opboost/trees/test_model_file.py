from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opboost.columns import OwnColumn, RankColumn
from opboost.errors import ModelFileError
from opboost.split_tests import bind, list_tests
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from opboost.trees.model_file import load_model, save_model
from opboost.trees.tree import Ensemble
from opboost.vertical import train

LOSSES: list[Loss] = [SquaredError(), Logistic(), Softmax(3), Poisson()]


pytestmark = pytest.mark.usefixtures("one_thread")


def _trained(loss: Loss, n_estimators: int = 10) -> tuple[Ensemble, np.ndarray]:
    """An ensemble on an own column with gaps and a passive party's rank column, and rows to score."""
    rng = np.random.default_rng(0)
    values, ranks = rng.normal(size=300), rng.integers(0, 21, 300)
    values[rng.random(300) < 0.1] = np.nan
    signal = np.nan_to_num(values) + ranks / 10 + rng.normal(size=300)
    labels = signal if isinstance(loss, SquaredError) else np.digitize(signal, [1.0, 2.0][: loss.n_outputs]) * 1.0
    columns = [OwnColumn("income", values), RankColumn("shop", 0, "c0", ranks.astype(np.uint32), 20)]
    parameters = BoostingParameters(n_estimators=n_estimators, max_depth=4)
    trained = train(columns, labels, rng.uniform(0.5, 2, 300), loss=loss, parameters=parameters)
    ensemble = bind(trained, list_tests(trained))
    answers = rng.integers(0, 2, (300, len(ensemble.features) - 1))
    return ensemble, np.column_stack([values, answers]).astype(np.float64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.json"


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_loaded_model_scores_as_the_saved_one_to_the_bit(loss: Loss, path: Path) -> None:
    ensemble, rows = _trained(loss)
    save_model(ensemble, path)
    assert load_model(path).scores(rows).tobytes() == ensemble.scores(rows).tobytes()


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_model_that_was_loaded_is_saved_as_the_same_file(loss: Loss, path: Path) -> None:
    save_model(_trained(loss)[0], path)
    first = path.read_bytes()
    save_model(load_model(path), path)
    assert path.read_bytes() == first


def test_a_loaded_model_has_all_that_the_saved_one_had(path: Path) -> None:
    ensemble, _ = _trained(Softmax(3))
    save_model(ensemble, path)
    loaded = load_model(path)
    assert (loaded.loss, loaded.features, loaded.owners) == (ensemble.loss, ensemble.features, ("shop",))
    for tree, other in zip(ensemble.trees, loaded.trees, strict=True):
        for name in ("columns", "thresholds", "missing_left", "lefts", "rights", "values", "gains", "covers"):
            assert getattr(tree, name).dtype == getattr(other, name).dtype
            np.testing.assert_array_equal(getattr(tree, name), getattr(other, name))


def test_a_model_without_trees_survives(path: Path) -> None:
    ensemble, _ = _trained(Logistic(), n_estimators=0)
    save_model(ensemble, path)
    assert load_model(path).predict(np.zeros((1, 1))) == ensemble.predict(np.zeros((1, 1)))


def test_statistics_of_the_labels_can_be_left_out(path: Path) -> None:
    ensemble, rows = _trained(Logistic())
    save_model(ensemble, path, statistics=False)
    assert "covers" not in path.read_text()
    assert all(not tree.covers.any() for tree in load_model(path).trees)
    np.testing.assert_array_equal(load_model(path).scores(rows), ensemble.scores(rows))


def _document(path: Path) -> dict[str, Any]:
    """A good file's content; in its first tree both children of the root are splits."""
    save_model(_trained(SquaredError())[0], path)
    document: dict[str, Any] = json.loads(path.read_text())
    del document["digest"]
    assert document["trees"][0]["lefts"][:2] == [1, 3]
    return document


def _with(*place: str | int, value: Any) -> Callable[[dict[str, Any]], object]:
    """An edit that puts a value at a place of the document."""

    def edit(document: dict[str, Any]) -> None:
        target: Any = document
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = value

    return edit


def _without(*place: str | int) -> Callable[[dict[str, Any]], object]:
    def edit(document: dict[str, Any]) -> None:
        target: Any = document
        for key in place[:-1]:
            target = target[key]
        del target[place[-1]]

    return edit


EDITS = {
    "another format": (_with("format", value="xgboost"), "not an opboost-model file"),
    "no format": (_without("format"), "not an opboost-model file"),
    "later version": (_with("version", value=2), "version 2; this package reads version 1"),
    "version in words": (_with("version", value="1"), "version '1'"),
    "no version": (_without("version"), "version None"),
    "cycle": (_with("trees", 0, "lefts", 1, value=0), "after their parent"),
    "a child of itself": (_with("trees", 0, "lefts", 1, value=1), "after their parent"),
    "a child beyond the end": (_with("trees", 0, "rights", 0, value=10_000), "after their parent"),
    "a negative child": (_with("trees", 0, "lefts", 0, value=-1), "after their parent"),
    "a child beyond 64 bits": (_with("trees", 0, "lefts", 0, value=2**70), "lefts must be a list"),
    "two parents": (_with("trees", 0, "lefts", 0, value=2), "exactly one parent"),
    "a fraction of a child": (_with("trees", 0, "lefts", 0, value=1.5), "lefts must be a list"),
    "a column below -1": (_with("trees", 0, "columns", -1, value=-2), "its column is -1"),
    "a column in words": (_with("trees", 0, "columns", 0, value="income"), "columns must be a list"),
    "a word among values": (_with("trees", 0, "values", 0, value="1e5"), "values must be a list"),
    "null among values": (_with("trees", 0, "values", 0, value=None), "values must be a list"),
    "number among flags": (_with("trees", 0, "missing_left", 0, value=2), "missing_left must be a list"),
    "NaN threshold": (_with("trees", 0, "thresholds", 0, value=np.nan), "thresholds must be finite"),
    "infinite leaf": (_with("trees", 0, "values", -1, value=np.inf), "values must be finite"),
    "infinite cover": (_with("trees", 0, "covers", 0, value=-np.inf), "covers must be finite"),
    "NaN base score": (_with("base_scores", 0, value=np.nan), "finite base scores"),
    "short values": (_without("trees", 0, "values", 0), "values must be a list of"),
    "short covers": (_with("trees", 0, "covers", value=[]), "covers must be a list of"),
    "nested values": (_with("trees", 0, "values", value=[[0.0]]), "malformed"),
    "ragged values": (_with("trees", 0, "values", 0, value=[1.0, 2.0]), "malformed"),
    "values as an object": (_with("trees", 0, "values", value={"0": 1}), "values must be a list"),
    "no node": (lambda document: [part.clear() for part in document["trees"][0].values()], "malformed"),
    "no lefts": (_without("trees", 0, "lefts"), "malformed: KeyError"),
    "a tree as a list": (_with("trees", 0, value=[1, 2]), "malformed"),
    "a tree as a number": (_with("trees", 0, value=7), "malformed"),
    "trees as an object": (_with("trees", value={}), "trees must be lists"),
    "no trees": (_without("trees"), "malformed: KeyError"),
    "features too few": (lambda document: document.update(features=document["features"][:1]), "there are 1 features"),
    "features as words": (_with("features", value=["income"]), "malformed"),
    "features as an object": (_with("features", value={"name": "x"}), "trees must be lists"),
    "a nameless feature": (_with("features", 0, value={}), "malformed: TypeError"),
    "an unknown key of a feature": (_with("features", 0, "code", value="print()"), "malformed: TypeError"),
    "a rank of a billion billions": (_with("features", 1, "rank", value=10**400), "a feature needs a name"),
    "more cells than a table has": (_with("features", 1, "n_cells", value=2**31), "a feature needs a name"),
    "more cells than a byte numbers": (_with("features", 1, "n_cells", value=256), "a feature needs a name"),
    "too many base scores": (_with("base_scores", value=[0.0, 1.0]), "1 finite base scores"),
    "no base scores": (_with("base_scores", value=None), "malformed"),
    "unknown loss": (_with("loss", "name", value="os.system"), "objective must be one of"),
    "loss as a word": (_with("loss", value="binary:logistic"), "loss must be an object"),
    "one class": (_with("loss", value={"name": "multi:softprob", "n_classes": 1}), "at least 2 classes"),
    "NaN classes": (_with("loss", value={"name": "multi:softprob", "n_classes": np.nan}), "malformed: ValueError"),
    "infinite classes": (_with("loss", value={"name": "multi:softprob", "n_classes": np.inf}), "malformed: Overflow"),
    "more classes than scores": (_with("loss", value={"name": "multi:softprob", "n_classes": 10**12}), "base scores"),
    "part of a round": (
        lambda document: document.update(loss={"name": "multi:softprob", "n_classes": 3}, base_scores=[0, 0, 0]),
        "10 trees do not divide into rounds of 3",
    ),
    "deep inside": (_with("trees", 0, "values", value=json.loads("[" * 500 + "]" * 500)), "malformed"),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_malformed_model_is_refused_with_the_file_and_the_reason(name: str, path: Path) -> None:
    edit, words = EDITS[name]
    document = _document(path)
    edit(document)
    path.write_text(json.dumps(document))
    with pytest.raises(ModelFileError, match=f"model.json .*{words}"):
        load_model(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"opboost", b"\xff\xfe\x00\x01", b"[" * 200_000, b'{"format":' * 200_000, b"PK\x03\x04"],
    ids=["empty", "cut off", "text", "not UTF-8", "deep lists", "deep objects", "archive"],
)
def test_what_is_not_json_is_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="is not a JSON file"):
        load_model(path)


def test_a_pipe_is_refused_at_once(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(ModelFileError, match="cannot be read: it is a named pipe"):
        load_model(path)


@pytest.mark.parametrize("content", ["null", "7", '"opboost-model"', "[]", "{}", "NaN"])
def test_json_of_another_kind_is_refused(content: str, path: Path) -> None:
    path.write_text(content)
    with pytest.raises(ModelFileError, match="not an opboost-model file"):
        load_model(path)


def _with_categories() -> tuple[Ensemble, np.ndarray]:
    """An ensemble on a number and on categories, few and many, and rows with unseen and missing ones."""
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.normal(size=400), rng.integers(0, 3, 400), rng.choice([0, 2, 3, 5, 8, 13, 900], 400)])
    labels = table[:, 0] + (table[:, 1] == 1) + np.sin(table[:, 2]) + rng.normal(size=400) / 4
    table[rng.random(table.shape) < 0.1] = np.nan
    columns = [OwnColumn(f"c{i}", values, is_categorical=i > 0) for i, values in enumerate(table.T)]
    parameters = BoostingParameters(n_estimators=10, max_depth=4)
    trained = train(columns, labels, np.ones(400), loss=SquaredError(), parameters=parameters)
    rows = rng.choice([np.nan, -1, 0, 1, 2, 2.5, 3, 4, 5, 8, 13, 899, 900, 901, 1e9], (300, 3))
    return bind(trained, {}), rows


def test_categories_survive_and_unseen_and_missing_ones_are_scored_to_the_bit(path: Path) -> None:
    ensemble, rows = _with_categories()
    save_model(ensemble, path)
    loaded = load_model(path)
    assert [tree.left_categories for tree in loaded.trees] == [tree.left_categories for tree in ensemble.trees]
    assert {type(c) for tree in loaded.trees for left in tree.left_categories.values() for c in left} == {int}
    assert max(len(left) for tree in loaded.trees for left in tree.left_categories.values()) > 1
    assert loaded.scores(rows).tobytes() == ensemble.scores(rows).tobytes()
    first = path.read_bytes()
    save_model(loaded, path)
    assert path.read_bytes() == first


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 6))
def test_a_changed_bit_anywhere_is_noticed(path: Path, place: float, bit: int) -> None:
    save_model(_trained(Logistic())[0], path)
    content = bytearray(path.read_bytes())
    written = json.loads(content)
    content[int(place * len(content))] ^= 1 << bit
    path.write_bytes(content)
    if _parsed(content) != written:
        with pytest.raises(ModelFileError):
            load_model(path)


def _parsed(content: bytearray) -> object:
    """What a JSON text says; of some numbers, the last digit may be another one, or an exponent's letter."""
    try:
        return json.loads(content)
    except ValueError:
        return None


def test_a_file_with_another_digest_is_refused_and_one_of_an_earlier_version_without_is_read(path: Path) -> None:
    document = _document(path)
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(document))
    assert len(load_model(path).trees) == len(document["trees"])
    path.write_text(json.dumps({**whole, "base_scores": [0.25]}))
    with pytest.raises(ModelFileError, match="is not as it was written: its digest is another one"):
        load_model(path)


def test_a_model_without_categories_has_no_entry_for_them(path: Path) -> None:
    save_model(_trained(Logistic())[0], path)
    assert "left_categories" not in path.read_text()


def _with_entry(path: Path, entry: Any) -> None:
    """A file with a tree of a root, which may split on categories, and two leaves."""
    tree = {
        "columns": [0, -1, -1],
        "thresholds": [0, 0, 0],
        "missing_left": [False] * 3,
        "lefts": [1, 0, 0],
        "rights": [2, 0, 0],
        "values": [0, 1, 2],
        "gains": [1, 0, 0],
        "covers": [2, 1, 1],
        "left_categories": entry,
    }
    document = {
        "format": "opboost-model",
        "version": 1,
        "loss": {"name": "reg:squarederror", "n_classes": 0},
        "base_scores": [0.0],
        "features": [{"name": "town"}],
        "trees": [tree],
    }
    path.write_text(json.dumps(document))


def test_an_entry_of_categories_that_fits_is_read(path: Path) -> None:
    _with_entry(path, [[0, [0, 2, 65535]]])
    assert load_model(path).predict(np.array([[0.0], [1], [2], [65535], [65536], [np.nan]])).tolist() == [
        1,
        2,
        1,
        1,
        2,
        2,
    ]


MALFORMED = {
    "unsorted": [[0, [2, 1]]],
    "twice": [[0, [1, 1]]],
    "negative": [[0, [-1, 3]]],
    "too large": [[0, [65536]]],
    "countless": [[0, [2**70]]],
    "none": [[0, []]],
    "a fraction": [[0, [1.5]]],
    "a whole number as a fraction": [[0, [1.0]]],
    "a flag": [[0, [True]]],
    "a word": [[0, ["1"]]],
    "null": [[0, [None]]],
    "nested": [[0, [[1]]]],
    "on a leaf": [[1, [1]]],
    "on no node": [[3, [1]]],
    "on a negative node": [[-1, [1]]],
    "on half a node": [[0.0, [1]]],
    "on a flag for a node": [[False, [1]]],
    "no pair": [[0]],
    "three of a kind": [[0, [1], [2]]],
    "a number": 7,
    "a word in all": "00",
    "an object": {"0": [1]},
    "null in all": None,
    "a word for a list": [[0, "12"]],
    "an object for a list": [[0, {"1": 2}]],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_categories_are_refused_with_the_file(name: str, path: Path) -> None:
    _with_entry(path, MALFORMED[name])
    with pytest.raises(ModelFileError, match=r"model\.json is malformed"):
        load_model(path)


def test_a_node_that_lists_its_categories_twice_is_refused(path: Path) -> None:
    _with_entry(path, [[0, [1]], [0, [2]]])
    with pytest.raises(ModelFileError, match=r"model\.json is malformed"):
        load_model(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3) | st.just(2**70),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def _read(path: Path) -> tuple[Ensemble | None, str]:
    """The model, or why there is none; any other error is a failure."""
    try:
        return load_model(path), ""
    except ModelFileError as error:
        return None, str(error)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=JSON)
def test_a_file_with_anything_anywhere_is_read_or_refused_in_a_sentence(
    path: Path, data: st.DataObject, value: Any
) -> None:
    """What is read can be walked: every row of any numbers reaches a leaf of every tree."""
    _with_entry(path, [[0, [1, 2]]])
    document = json.loads(path.read_text())
    target: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(target) if isinstance(target, dict) else range(len(target))))
        inner = target[key]
        if isinstance(inner, (dict, list)) and inner and data.draw(st.booleans()):
            target = inner
            continue
        break
    target[key] = value
    path.write_text(json.dumps(document))
    loaded, refusal = _read(path)
    assert "\n" not in refusal
    if loaded is None:
        return
    assert np.isfinite(loaded.scores(np.zeros((3, len(loaded.features))))).all()
    save_model(loaded, path)
    first = path.read_bytes()
    save_model(load_model(path), path)
    assert path.read_bytes() == first


class _Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return Path.touch, (self.path,)


def test_a_pickle_is_refused_and_nothing_in_it_is_executed(path: Path) -> None:
    trace = path.with_name("executed")
    path.write_bytes(pickle.dumps(_Touch(trace), protocol=0))
    with pytest.raises(ModelFileError, match="is not a JSON file"):
        load_model(path)
    assert not trace.exists()


def test_a_model_that_cannot_be_written_as_json_is_not_written(path: Path) -> None:
    ensemble, _ = _trained(SquaredError(), n_estimators=1)
    ensemble.trees[0].values[0] = np.nan
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_model(ensemble, path)
    assert not path.exists()
