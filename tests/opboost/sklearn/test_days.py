"""Dates and durations in tables and labels: days where a data frame has a kind for them, refused everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest

from opboost import (
    DPBoostingClassifier,
    DPBoostingRegressor,
    DPBoostRegressor,
    FederatedGBDTRegressor,
    InPrivateRegressor,
    OpBoostClassifier,
    OpBoostRegressor,
    SGBDTRegressor,
)
from opboost.errors import DataError
from opboost.sklearn.data_frames import FrameEncoder, with_times
from opboost.sklearn.days import days_of, has_times, kind_of

pytestmark = pytest.mark.usefixtures("one_thread")

N = 40
DAYS = np.arange(N) % 10 + 1
TABLE = np.random.default_rng(0).normal(size=(N, 2))
SPANS = pd.Series(pd.to_timedelta(DAYS, unit="D"))
SINCE = pd.Timestamp("2020-01-01") + SPANS
OF_ROWS = (DPBoostingRegressor, SGBDTRegressor, DPBoostRegressor, InPrivateRegressor, FederatedGBDTRegressor)
LABELS: dict[str, Any] = {
    "series": SPANS,
    "zoned dates": SINCE.dt.tz_localize("Europe/Berlin"),
    "array": SPANS.to_numpy(),
    "dates of an array": SINCE.to_numpy(),
    "objects of pandas": np.array(list(SPANS), dtype=object),
    "objects of NumPy": np.array(list(SPANS.to_numpy()), dtype=object),
    "objects of Python": [timedelta(days=int(days)) for days in DAYS],
    "categories": SPANS.astype("category"),
    "arrow in pandas": SINCE.astype("timestamp[ms][pyarrow]"),
    "arrow": pyarrow.array(SPANS),
    "data frame": SPANS.to_frame("span"),
    "periods": SINCE.dt.to_period("D"),
    "objects of periods": list(SINCE.dt.to_period("D")),
    "one among numbers": [*DAYS[1:].astype(object), np.timedelta64(1, "D")],
}
CELLS: dict[str, Callable[[int], Any]] = {
    "numpy": lambda days: np.datetime64("1970-01-01") + np.timedelta64(days, "D"),
    "numpy durations": lambda days: np.timedelta64(days, "D"),
    "date": lambda days: date(2020, 1, days),
    "datetime": lambda days: datetime(2020, 1, days),
    "timestamp": lambda days: pd.Timestamp(2020, 1, days),
    "timedelta": lambda days: timedelta(days),
    "pandas durations": lambda days: pd.Timedelta(days=days),
}


@pytest.mark.parametrize("form", LABELS)
@pytest.mark.parametrize("kind", [*OF_ROWS, OpBoostRegressor])
def test_dates_and_durations_are_no_labels_of_a_regressor(kind: Any, form: str) -> None:
    """They were read as nanoseconds, or whatever unit they were in; all lay beyond the bounds, and budget was spent."""
    model = kind(epsilon=1.0, bounds=(-5, 5), label_bounds=(0, 20)) if kind in OF_ROWS else kind()
    with pytest.raises(DataError, match=r"labels hold dates or durations, and numbers are .* Nothing was released"):
        model.fit(TABLE, LABELS[form])
    assert not hasattr(model, "model_")


def test_later_records_and_scored_rows_have_labels_of_numbers_too() -> None:
    stream = DPBoostingRegressor(epsilon=1.0, bounds=(-5, 5), label_bounds=(0, 20), n_estimators=2)
    with pytest.raises(DataError, match="labels hold dates or durations"):
        stream.fit(TABLE, DAYS).partial_fit(TABLE, SPANS)
    with pytest.raises(DataError, match="labels hold dates or durations"):
        OpBoostRegressor(n_estimators=2).fit(TABLE, DAYS, eval_set=[(TABLE, SPANS)])
    with pytest.raises(DataError, match="labels hold dates or durations"):
        OpBoostRegressor(objective="rank:ndcg").fit(TABLE, SPANS.to_numpy(), qid=DAYS)


@pytest.mark.parametrize("form", LABELS)
def test_weights_and_base_margins_are_no_dates_and_durations(form: str) -> None:
    """They were read as nanoseconds, so that one row outweighed all others."""
    model = OpBoostRegressor(n_estimators=2)
    with pytest.raises(DataError, match=r"^the sample weights hold dates or durations, .* Nothing was released"):
        model.fit(TABLE, DAYS, sample_weight=LABELS[form])
    with pytest.raises(DataError, match=r"^the base margins hold dates or durations, .* Nothing was released"):
        model.fit(TABLE, DAYS, base_margin=LABELS[form])
    started = model.fit(TABLE, DAYS, base_margin=DAYS)
    with pytest.raises(DataError, match=r"^the base margins hold dates or durations"):
        started.predict(TABLE, base_margin=LABELS[form])
    with pytest.raises(DataError, match=r"^the base margins hold dates or durations"):
        model.fit(TABLE, DAYS, base_margin=DAYS, eval_set=[(TABLE, DAYS)], base_margin_eval_set=[LABELS[form]])


@pytest.mark.parametrize("form", ["periods", "objects"])
@pytest.mark.parametrize("bounds", [None, {"time": (0, 90)}, {"time": ["2020-01", "2020-02"]}])
def test_periods_are_refused(form: str, bounds: Any) -> None:
    """They count in the unit of their frequency: the same dates were other numbers in a table of another one."""
    frame = SINCE.dt.to_period("D").astype(object if form == "objects" else "period[D]").to_frame("time")
    with pytest.raises(DataError, match=r"column 'time' holds periods, which .* give dates, .* Nothing was released"):
        OpBoostRegressor(n_estimators=2, bounds=bounds).fit(frame.assign(size=TABLE[:, 0]), DAYS)
    for trained in (SINCE, pd.Series(DAYS)):
        with pytest.raises(DataError, match="column 'time' holds periods"):
            OpBoostRegressor(n_estimators=2).fit(trained.to_frame("time"), DAYS).predict(frame)
    with pytest.raises(DataError, match="Pass a data frame"):
        OpBoostRegressor(n_estimators=2).fit(frame.to_numpy().tolist(), DAYS)
    for table in (frame, frame.to_numpy(), frame.to_numpy().tolist()):
        with pytest.raises(DataError, match=r"hold dates or durations, and numbers are needed: (time|x0)"):
            DPBoostingClassifier(epsilon=1.0, bounds=(0, 90)).fit(table, DAYS % 2)


def test_dates_may_name_classes() -> None:
    labels = SINCE.where(DAYS > 5, SINCE[0]).where(DAYS <= 5, SINCE[9]).to_numpy()
    model = OpBoostClassifier(n_estimators=2, min_child_weight=0).fit(DAYS[:, None], labels)
    assert (model.predict(DAYS[:, None]) == labels).all()


@pytest.mark.parametrize("form", ["lists", "objects", "array"])
@pytest.mark.parametrize("cells", CELLS)
def test_arrays_and_lists_hold_no_dates_and_durations(cells: str, form: str) -> None:
    """Dates in days and the same in seconds were other numbers, and scores were chance."""
    rows: Any = [[1.0, CELLS[cells](int(days))] for days in DAYS]
    if form == "objects":
        rows = np.array(rows, dtype=object)
    if form == "array":
        rows = np.array([[cell] * 2 for _, cell in rows], dtype="m8[s]" if has_durations(cells) else "M8[s]")
    columns, labels = "x0, x1" if form == "array" else "x[01, x]*", DAYS > 5
    of_rows = DPBoostingClassifier(epsilon=1.0, bounds=(-5, 5), classes=(False, True), n_estimators=2)
    with pytest.raises(DataError, match=rf"hold dates or durations, and numbers are needed: {columns}\. "):
        of_rows.fit(rows, labels)
    with pytest.raises(DataError, match="hold dates or durations"):
        of_rows.fit(TABLE, labels).predict(rows)
    of_columns = OpBoostClassifier(n_estimators=2)
    with pytest.raises(DataError, match=rf"hold dates or durations: {columns}\. Pass a data frame, where they count"):
        of_columns.fit(rows, labels)
    with pytest.raises(DataError, match="Pass a data frame"):
        of_columns.fit(TABLE, labels, eval_set=[(rows, labels)])
    with pytest.raises(DataError, match="Pass a data frame"):
        of_columns.fit(TABLE, labels).predict(rows)


def has_durations(cells: str) -> bool:
    return isinstance(CELLS[cells](1), timedelta | np.timedelta64)


@pytest.mark.parametrize("cell", [date(2020, 1, 1), np.timedelta64(1, "D"), pd.Period("2020-01", "M")])
def test_columns_with_dates_durations_and_periods_are_found_in_every_table(cell: Any) -> None:
    assert with_times([[1.0, cell]]) == ["x1"]
    assert with_times(pd.DataFrame({"a": [1.0], "b": [cell]})) == ["b"]
    assert with_times([cell]) == ["x0"]
    assert with_times(None) == with_times([[1.0], [1.0, cell]]) == []


def test_a_date_among_the_numbers_of_a_frames_column_is_refused_by_estimators_of_rows() -> None:
    frame = pd.DataFrame({"age": pd.Series([np.timedelta64(1, "D"), *DAYS[1:]], dtype=object), "size": 1.0})
    with pytest.raises(DataError, match="needed: age"):
        DPBoostingClassifier(epsilon=1.0, bounds=(0, 20)).fit(frame, DAYS % 2)


KINDS: dict[str, Any] = {"dates": SINCE, "durations": SPANS, "numbers": SINCE.astype("int64")}


@pytest.mark.parametrize("new", KINDS)
@pytest.mark.parametrize("trained", KINDS)
def test_a_column_stays_of_the_kind_that_was_trained_on(trained: str, new: str) -> None:
    """Seconds and the days of the same durations are other numbers, and scores were chance without a word."""
    before, after = (pd.DataFrame({"time": KINDS[kind], "size": TABLE[:, 0]}) for kind in (trained, new))
    model = OpBoostRegressor(n_estimators=2, random_state=0).fit(before, DAYS)
    if trained == new:
        assert np.isfinite(model.predict(after)).all()
        return
    said = f"column 'time' held {trained} in the table that was trained on, and holds {new} here; give {trained}"
    with pytest.raises(DataError, match=said):
        model.predict(after)
    with pytest.raises(DataError, match=said):
        OpBoostRegressor(n_estimators=2).fit(before, DAYS, eval_set=[(after, DAYS)])
    with pytest.raises(DataError, match=said):
        OpBoostRegressor(n_estimators=2, random_state=0, continue_from=model).fit(after, DAYS)


@pytest.mark.parametrize("trained", KINDS)
def test_an_empty_column_is_of_any_kind(trained: str) -> None:
    before = KINDS[trained].to_frame("time")
    empty = pd.Series([None, None])
    encoder = FrameEncoder.learn(before, None, {})
    for kind in ("float64", "datetime64[s]", "timedelta64[s]", "object"):
        assert encoder.encode(empty.astype(kind).to_frame("time"))["time"].isna().all()
        assert not FrameEncoder.learn(empty.astype(kind).to_frame("time"), None, {}).kinds


def test_durations_of_other_libraries_are_days() -> None:
    """Objects of Python's were categories, a duration each."""
    spans = [timedelta(days=1, hours=12), None, timedelta(days=2)]
    forms = [
        pd.Series(spans, dtype=object),
        pd.Series([np.timedelta64(36, "h"), None, np.timedelta64(2, "D")], dtype=object),
        pd.Series(spans, dtype="timedelta64[s]"),
        pyarrow.table({"span": spans}).to_pandas()["span"],
    ]
    for form in forms:
        encoder = FrameEncoder.learn(form.to_frame("span"), None, {})
        assert encoder.kinds == {"span": "durations"}
        np.testing.assert_array_equal(encoder.encode(form.to_frame("span"))["span"], [1.5, np.nan, 2])


def test_texts_in_place_of_dates_are_refused_as_texts() -> None:
    encoder = FrameEncoder.learn(SINCE.to_frame("time"), None, {})
    with pytest.raises(DataError, match=r"column 'time' held dates in .* holds texts here; give dates") as refusal:
        encoder.encode(SINCE.astype("string").to_frame("time"))
    assert "2020" not in str(refusal.value)


def test_long_durations_are_days() -> None:
    span = pd.Series(np.array([2**61], dtype="m8[s]"))
    np.testing.assert_allclose(days_of(span), [2**61 / 86400])


def test_kinds_of_cells() -> None:
    days = pd.Series([np.datetime64("1970-01-03"), np.datetime64("1970-01-02T12", "h")], dtype=object)
    assert kind_of(days) == "dates"
    np.testing.assert_array_equal(days_of(days), [2, 1.5])
    assert kind_of(pd.Series([pd.Period("2020"), None], dtype=object)) == "periods"
    assert kind_of(pd.Series([1.0, None])) == kind_of(pd.Series(["a"], dtype="category")) == "numbers"
    assert has_times(np.array([1.0, np.datetime64("NaT")], dtype=object))
    assert not has_times(np.array(["2020-01-01", 1.0, None], dtype=object))


def test_durations_of_python_may_be_longer_than_those_of_pandas() -> None:
    cells = pd.Series([timedelta.max, timedelta(hours=12), np.timedelta64(36, "h"), None], dtype=object)
    assert days_of(cells).tolist()[:3] == [1e9, 0.5, 1.5]
    assert np.isnan(days_of(cells)[3])
