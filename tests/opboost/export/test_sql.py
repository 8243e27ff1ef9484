"""SQL queries, run by SQLite."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opboost.errors import ParameterError
from opboost.export.sql import to_sql
from opboost.trees.losses import Logistic, Loss, Ordinal, SquaredError
from opboost.trees.tree import Ensemble, Feature, Tree
from tests.support.exported_models import LOSSES, N_CATEGORIES, rows, trained

KINDS = ("red", "o'blue", "green", "grey", "black")


def _run(query: str, features: Any, *, kinds: bool = False) -> Any:
    database = sqlite3.connect(":memory:")
    database.execute('CREATE TABLE "my ""records" (id INTEGER, "width" REAL, "the ""height""" REAL, "kind")')
    cells = [[None if np.isnan(cell) else cell for cell in row] for row in features.tolist()]
    if kinds:
        cells = [[*row[:2], None if row[2] is None else KINDS[int(row[2])]] for row in cells]
    database.executemany('INSERT INTO "my ""records" VALUES (?, ?, ?, ?)', [(i, *row) for i, row in enumerate(cells)])
    found = np.array(sorted(database.execute(query).fetchall()))
    assert (found[:, 0] == np.arange(len(features))).all()
    return found[:, 1:]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_database_scores_as_the_ensemble_does(loss: Loss) -> None:
    ensemble, _ = trained(loss)
    new = rows(300, seed=2)
    found = _run(to_sql(ensemble, table='my "records', keep=["id"]), new)
    np.testing.assert_allclose(found, ensemble.predict(new).reshape(found.shape), rtol=1e-12)


def test_a_table_may_hold_the_names_of_categories() -> None:
    assert len(KINDS) == N_CATEGORIES
    ensemble, _ = trained(Logistic())
    new = rows(300, seed=3)
    found = _run(to_sql(ensemble, table='my "records', keep=["id"], categories={"kind": KINDS}), new, kinds=True)
    np.testing.assert_allclose(found[:, 0], ensemble.predict(new), rtol=1e-12)
    with pytest.raises(ParameterError, match="1 names of categories"):
        to_sql(ensemble, table="records", categories={"kind": KINDS[:1]})
    with pytest.raises(ParameterError, match="no feature 'colour'"):
        to_sql(ensemble, table="records", categories={"colour": KINDS})


def test_a_name_that_is_not_listed_counts_as_other_or_leaves_the_record_without_a_prediction() -> None:
    """Records of such a name were scored as if they were of whatever goes right."""
    ensemble, _ = trained(Logistic())
    new = rows(300, seed=4)
    odd = new[:, 2] == 2
    assert 0 < odd.sum() < len(new)
    for place in range(N_CATEGORIES):
        kinds = [name if number != place else "other" for number, name in enumerate(KINDS)]
        cells = [None if np.isnan(cell) else KINDS[int(cell)] for cell in new[:, 2]]
        as_other = np.column_stack([new[:, :2], np.where(new[:, 2] == 2, place, new[:, 2])])
        found = {}
        for with_others in ((), ("kind",)):
            query = to_sql(ensemble, table="t", categories={"kind": kinds}, keep=["id"], with_others=with_others)
            database = sqlite3.connect(":memory:")
            database.execute('CREATE TABLE t (id INTEGER, "width" REAL, "the ""height""" REAL, "kind")')
            shown = [
                "teal" if one else cell if cell in (*kinds, None) else "other"
                for one, cell in zip(odd, cells, strict=True)
            ]
            records = zip(range(len(new)), new[:, 0].tolist(), new[:, 1].tolist(), shown, strict=True)
            records = [[None if cell != cell else cell for cell in record] for record in records]
            database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", records)
            found[with_others] = [one for _, one in sorted(database.execute(query))]
        assert [one is None for one in found[()]] == odd.tolist()
        np.testing.assert_allclose(found["kind",], ensemble.predict(as_other), rtol=1e-12)


@pytest.mark.parametrize("keep", [["score_0"], ["id", "Score_0"], ["PREDICTION"], ["id", "id"]])
def test_a_column_to_keep_has_a_name_of_its_own(keep: list[str]) -> None:
    """SQLite would predict from the table's `score_0`."""
    ensemble, _ = trained(Logistic(), n_rounds=1)
    with pytest.raises(ParameterError, match=r"score_0, prediction, which are the query's own\. No query"):
        to_sql(ensemble, table="records", keep=keep)


@pytest.mark.parametrize("lacking", ["id", "width", "kind"])
def test_a_table_that_lacks_a_column_is_not_scored(lacking: str) -> None:
    """SQLite would take the quoted name for a text, and score every record by it."""
    ensemble, _ = trained(Logistic())
    database = sqlite3.connect(":memory:")
    columns = [name for name in ("id", "width", '"the ""height"""', "kind") if name != lacking]
    query = to_sql(ensemble, table="records", keep=["id"])
    database.execute(f"CREATE TABLE records ({', '.join(columns)})")
    with pytest.raises(sqlite3.OperationalError, match=f"no such column: t.{lacking}"):
        database.execute(query)


def test_more_trees_than_a_database_nests() -> None:
    ensemble, _ = trained(Logistic())
    many = replace(ensemble, trees=ensemble.trees * 200)
    new = rows(20, seed=4)
    found = _run(to_sql(many, table='my "records', keep=["id"]), new)
    np.testing.assert_allclose(found[:, 0], many.predict(new), rtol=1e-9)


@pytest.mark.parametrize("threshold", [-0.5, 0.0, 1.0, 5.0])
@pytest.mark.parametrize("missing_left", [False, True])
def test_ordered_categories_that_are_named_go_where_the_model_sends_them(threshold: float, missing_left: bool) -> None:
    """Also where none goes left, or all do: a split that asks whether the cell is empty."""
    nothing, lefts, rights = np.zeros(3), np.array([1, 0, 0], np.int32), np.array([2, 0, 0], np.int32)
    columns, thresholds = np.array([0, -1, -1], np.int32), np.array([threshold, 0, 0])
    is_left, values = np.array([missing_left, False, False]), np.array([0.0, 1.0, 2.0])
    tree = Tree(columns, thresholds, is_left, lefts, rights, values, nothing, nothing)
    model = Ensemble((tree,), np.zeros(1), SquaredError(), (Feature("g"),))
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE r (g TEXT)")
    database.executemany("INSERT INTO r VALUES (?)", [("lo",), ("hi",), (None,)])
    found = [score for (score,) in database.execute(to_sql(model, table="r", categories={"g": ("lo", "hi")}))]
    assert found == model.predict(np.array([[0.0], [1.0], [np.nan]])).ravel().tolist()


def test_an_owners_test_is_a_column_of_answers() -> None:
    ensemble, _ = trained(Logistic())
    asked = replace(ensemble, features=(Feature("b0", "shop", 12), *ensemble.features[1:]))
    assert '"shop: b0 above rank 12 or missing" <= ' in to_sql(asked, table="records")


def test_other_losses_are_refused() -> None:
    ensemble, _ = trained(Logistic(), n_rounds=1)
    with pytest.raises(ParameterError, match="predictions of ordinal:logistic"):
        to_sql(replace(ensemble, trees=(), base_scores=np.zeros(2), loss=Ordinal(3)), table="records")


@pytest.mark.parametrize("word", ["a\\", "a\0b", "a\nb", "a\x7f"])
def test_words_that_databases_read_in_different_ways_are_refused(word: str) -> None:
    """A backslash escapes the closing quote in MySQL and BigQuery."""
    ensemble, _ = trained(Logistic())
    given: list[dict[str, Any]] = [{"table": word}, {"keep": [word]}, {"categories": {"kind": [*KINDS[1:], word]}}]
    for one in given:
        with pytest.raises(ParameterError, match="backslash or a control character"):
            to_sql(ensemble, **{"table": "records", **one})


@pytest.mark.parametrize("given", [{"table": ""}, {"table": "t", "keep": [""]}])
def test_a_table_or_column_without_a_name_is_refused(given: dict[str, Any]) -> None:
    ensemble, _ = trained(Logistic())
    with pytest.raises(ParameterError, match="without a name"):
        to_sql(ensemble, **given)


def test_columns_are_read_by_their_own_names() -> None:
    ensemble, _ = trained(Logistic())
    own = replace(ensemble, features=(Feature("a<b"), Feature("a_b"), Feature("[kind]")))
    query = to_sql(own, table="t", categories={"[kind]": KINDS})
    assert {'"a<b"', '"a_b"', '"[kind]"'} <= set(re.findall('"[^"]+"', query))
    assert '"a_b_2"' not in query
    hidden = replace(ensemble, features=(Feature("a\\b"), *ensemble.features[1:]))
    with pytest.raises(ParameterError, match="backslash or a control character"):
        to_sql(hidden, table="t")
    question = "shop: c3 above rank 1 or missing"
    alike = replace(ensemble, features=(Feature(question), Feature("c3", "shop", 1), Feature(f"{question}_2")))
    with pytest.raises(ParameterError, match="has the name of an owner's test"):
        to_sql(alike, table="t")


def test_bytes_of_an_argument_that_are_no_text_are_refused() -> None:
    """`opboost export --table` ended in a traceback."""
    ensemble, _ = trained(Logistic())
    for given in ({"table": "t\udcff"}, {"table": "t", "keep": ["\udcff"]}):
        with pytest.raises(ParameterError, match=r"bytes that are no text\. No query was written"):
            to_sql(ensemble, **given)
