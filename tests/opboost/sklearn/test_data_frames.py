"""Data frames as users have them: categories, texts, truth values, dates, empty cells; of pandas, polars and Arrow."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest

from opboost import DPBoostingClassifier, OpBoostClassifier, OpBoostRegressor
from opboost.errors import DataError, ParameterError, SchemaError
from opboost.schema import Kind
from opboost.sklearn.data_frames import FrameEncoder, PublicCategories, as_frame
from opboost.sklearn.days import bounds_in_days

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL: dict[str, Any] = {"n_estimators": 8, "max_depth": 3, "random_state": 0}
COLOURS = ["red", "green", "blue"]


def _table(n: int = 300, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": pd.array(rng.integers(18, 80, n), dtype="Int64"),
            "colour": pd.Categorical(rng.choice(COLOURS, n), categories=COLOURS),
            "town": rng.choice(["Aachen", "Bonn", "Celle"], n),
            "owner": rng.random(n) < 0.5,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
        }
    )
    signal = (
        frame["age"].to_numpy(float) / 20
        + (frame["colour"] == "green") * 2.0
        - (frame["town"] == "Bonn") * 1.0
        + (frame["since"] > "2021-06-01") * 1.5
    )
    frame.loc[::17, ["age", "colour", "since"]] = None
    return frame, np.asarray(signal + rng.normal(size=n) / 4)


def test_categories_that_are_numbers_stay_what_they_are_beside_a_missing_cell() -> None:
    """All of them were new categories then, and a fit or a prediction said nothing."""
    frame = pd.DataFrame({"code": pd.Categorical([20, None, 10])})
    encoder = FrameEncoder.learn(frame, None, {})
    assert encoder.categories == {"code": ("10", "20")}
    np.testing.assert_array_equal(encoder.encode(frame)["code"], [1, np.nan, 0])


@pytest.mark.parametrize(("of_training", "of_prediction"), [("float64", "int64"), ("int64", "float64")])
def test_categories_are_the_same_whether_a_cell_beside_them_is_missing(of_training: str, of_prediction: str) -> None:
    """A cell that is missing makes whole numbers doubles; each was a new category then, and scores were chance."""
    codes = pd.Series([20, 10, 30, 20])
    train, new = (
        pd.DataFrame({"code": codes.astype(kind).astype("category")}) for kind in (of_training, of_prediction)
    )
    encoder = FrameEncoder.learn(train, None, {})
    assert encoder.categories == {"code": ("10", "20", "30")}
    np.testing.assert_array_equal(encoder.encode(new)["code"], [1, 0, 2, 1])
    assert PublicCategories.of(train["code"].dtype) == PublicCategories(("10", "20", "30"), Kind.UNORDERED)
    mixed = pd.DataFrame({"code": pd.Series(["x", 10.0, 20, None], dtype=object)})
    encoder = FrameEncoder.learn(mixed, None, {})
    assert encoder.categories == {"code": ("10", "20", "x")}
    np.testing.assert_array_equal(encoder.encode(mixed)["code"], [2, 0, 1, np.nan])


@pytest.mark.parametrize(
    "cells",
    [
        pd.cut(pd.Series([0.1, 0.5, np.nan]), 2),
        pd.Series(pd.to_datetime(["2024-05-31", None, "2024-06-01 01:00"], format="mixed")).astype("category"),
        pd.Series([b"a", b"b", None], dtype=object),
        pd.Series(["x.0", 3.0, None], dtype=object),
        pd.Series([[1], [2], None], dtype=object),
    ],
)
def test_every_category_of_training_is_a_known_one(cells: pd.Series) -> None:
    """Bytes were new categories in training itself, and lists ended in a traceback."""
    frame = pd.DataFrame({"cell": cells})
    found = FrameEncoder.learn(frame, None, {}).encode(frame)["cell"]
    assert sorted(found.dropna()) == [0, 1]


def test_columns_become_numbers_by_their_kind() -> None:
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None], dtype="Int64"),
            "flag": [True, False],
            "text": ["b", None],
            "sized": pd.Categorical(["s", "l"], categories=["s", "m", "l"]),
            "day": pd.to_datetime(["1970-01-03 12:00", None]),
            "zoned": pd.to_datetime(["1970-01-02", "1970-01-03"]).tz_localize("UTC"),
            "span": pd.to_timedelta([1.5, 2], unit="D"),
            "digits": np.array(["1", 2], dtype=object),
        }
    )
    found = FrameEncoder.learn(frame, None, {}).encode(frame)
    expected = [[1, 1, 0, 0, 2.5, 1, 1.5, 1], [np.nan, 0, np.nan, 2, np.nan, 2, 2, 2]]
    np.testing.assert_array_equal(found.to_numpy(), expected)
    assert list(found.columns) == list(frame.columns)


def test_dates_of_other_libraries_are_days() -> None:
    """They were categories, a date each, or refused where the column was passive."""
    days = [date(1970, 1, 3), None, date(1970, 1, 2)]
    arrow = pyarrow.table({"day": pyarrow.array(days, pyarrow.date32())})
    times = pd.DataFrame({"day": pd.to_datetime(pd.Series(days))})
    aware = pd.DataFrame({"day": pd.Series([datetime(1970, 1, 3, tzinfo=UTC), None], dtype=object)})
    frame = as_frame(arrow)
    assert frame is not None
    encoder = FrameEncoder.learn(frame, None, {})
    assert not encoder.categories
    for one in (frame, times):
        np.testing.assert_array_equal(encoder.encode(one)["day"], [2, np.nan, 1])
    np.testing.assert_array_equal(encoder.encode(aware)["day"], [2, np.nan])
    labels, bounds = np.arange(60.0), {"day": (date(1969, 12, 1), date(1970, 12, 1))}
    many = pyarrow.table({"day": pyarrow.array(range(60), pyarrow.int32()).cast(pyarrow.date32())})
    model = OpBoostRegressor(bounds=bounds, epsilon=np.inf, **SMALL).fit(many, labels)
    assert np.corrcoef(model.predict(many), labels)[0, 1] > 0.9


@pytest.mark.parametrize("form", ["pandas", "objects", "arrow", "polars"])
def test_days_beyond_nanoseconds_are_days(form: str) -> None:
    """Dates that stand for "never", as 9999-12-31, ended in a traceback."""
    days = [date(9999, 12, 31), None, date(1600, 1, 1)]
    table: Any = {
        "pandas": lambda: pd.DataFrame({"day": pd.Series(days).astype("datetime64[s]")}),
        "objects": lambda: pd.DataFrame({"day": pd.Series(days, dtype=object)}),
        "arrow": lambda: pyarrow.table({"day": days}),
        "polars": lambda: pytest.importorskip("polars").DataFrame({"day": days}),
    }[form]()
    frame = as_frame(table)
    found = FrameEncoder.learn(frame, None, {}).encode(frame)["day"]
    np.testing.assert_array_equal(found, [2932896, np.nan, -135140])
    assert bounds_in_days((days[2], days[0])) == (-135140, 2932896)


def test_columns_of_arrows_types_in_pandas_are_read_as_others() -> None:
    """Texts and decimals were refused as no numbers."""
    table = pyarrow.table(
        {
            "text": ["b", "a", None],
            "coded": pyarrow.array(["b", "a", None]).dictionary_encode(),
            "amount": [Decimal("1.10"), Decimal(2), None],
            "day": [date(1970, 1, 3), None, date(1970, 1, 2)],
            "n": [1, None, 3],
            "flag": [True, False, None],
        }
    )
    frame, expected = table.to_pandas(types_mapper=pd.ArrowDtype), table.to_pandas()
    for one in (frame, frame.iloc[:0:-1]):
        encoder = FrameEncoder.learn(one, None, {})
        assert encoder == FrameEncoder.learn(expected.loc[one.index], None, {})
        pd.testing.assert_frame_equal(encoder.encode(one), encoder.encode(expected.loc[one.index]))


def test_columns_without_names_are_numbered() -> None:
    """Their categories were taken for numbers, or no place was found for them."""
    frame, labels = _table()
    plain = frame[["colour", "town"]].set_axis([0, 1], axis=1)
    expected = OpBoostRegressor(**SMALL).fit(frame[["colour", "town"]], labels)
    model = OpBoostRegressor(**SMALL).fit(plain, labels)
    assert model._categorical() == {"x0", "x1"}
    np.testing.assert_array_equal(model.predict(plain), expected.predict(frame[["colour", "town"]]))
    passive = OpBoostRegressor(bounds={0: COLOURS}, missing="category", **SMALL).fit(plain, labels)
    assert [one.schema.name for one in passive._mechanisms] == ["x0"]
    assert passive.predict(plain).shape == labels.shape


def test_columns_of_one_name_are_refused() -> None:
    """All but the last of them were left out of the model, and nothing was said."""
    frame = pd.DataFrame(np.random.default_rng(0).random((60, 3)), columns=["a", "b", "a"])
    with pytest.raises(DataError, match="several columns are named a; rename them"):
        OpBoostRegressor(**SMALL).fit(frame, frame["b"])
    model = OpBoostRegressor(**SMALL).fit(frame.iloc[:, :2], frame["b"])
    with pytest.raises(DataError, match="several columns are named a; rename them"):
        model.predict(frame)
    with pytest.raises(TypeError, match="string names"):
        OpBoostRegressor(**SMALL).fit(frame.set_axis(["0", "b", 0], axis=1), frame["b"])


def test_a_category_that_training_lacked_goes_with_none_that_it_had() -> None:
    train = pd.DataFrame({"town": ["Bonn", "Aachen"]})
    encoder = FrameEncoder.learn(train, None, {})
    assert encoder.encode(pd.DataFrame({"town": ["Celle", "Aachen", None]}))["town"].tolist()[:2] == [2, 0]


@pytest.mark.parametrize("form", ["pandas", "arrow", "polars"])
def test_frames_of_every_library_train_alike(form: str) -> None:
    frame, labels = _table()
    given: Any = {
        "pandas": lambda: frame,
        "arrow": lambda: pyarrow.Table.from_pandas(frame, preserve_index=False),
        "polars": lambda: pytest.importorskip("polars").from_pandas(frame),
    }[form]()
    by_hand = FrameEncoder.learn(frame, None, {}).encode(frame)
    expected = OpBoostRegressor(categorical_features=["colour", "town"], **SMALL).fit(by_hand, labels).predict(by_hand)
    model = OpBoostRegressor(**SMALL).fit(given, labels)
    np.testing.assert_array_equal(model.predict(given), expected)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert np.corrcoef(expected, labels)[0, 1] > 0.9


def test_passive_columns_have_public_categories_and_dates() -> None:
    frame, labels = _table()
    bounds: dict[Any, Any] = {
        "colour": COLOURS,
        "town": pd.CategoricalDtype(["Aachen", "Bonn", "Celle"], ordered=True),
        "since": (date(2020, 1, 1), pd.Timestamp("2022-12-31")),
    }
    model = OpBoostRegressor(bounds=bounds, missing="category", epsilon=np.inf, category_epsilon=np.inf, **SMALL)
    model.fit(frame, labels, eval_set=[(frame, labels)])
    assert np.corrcoef(model.predict(frame), labels)[0, 1] > 0.85
    kinds = {one.schema.name: one.schema.kind for one in model._mechanisms}
    assert kinds == {"colour": Kind.UNORDERED, "town": Kind.ORDERED, "since": Kind.NUMERIC}
    with pytest.raises(DataError, match="'colour' has 1 cells whose category is not among the 3 public ones"):
        model.predict(frame.iloc[:2].assign(colour=["red", "mauve"]))


def test_what_is_not_public_is_refused() -> None:
    frame, labels = _table()
    with pytest.raises(SchemaError, match="need a public list of their categories as `bounds`: town"):
        OpBoostRegressor(bounds={"town": (0, 2)}, **SMALL).fit(frame, labels)
    with pytest.raises(SchemaError, match="need public bounds, and these have none: colour"):
        OpBoostRegressor(passive_columns=["colour"], **SMALL).fit(frame, labels)
    with pytest.raises(ParameterError, match="list categories, which need a data frame"):
        OpBoostRegressor(bounds={0: COLOURS}, **SMALL).fit(np.zeros((300, 2)), labels)
    with pytest.raises(ParameterError, match="'hue' does not exist"):
        OpBoostRegressor(bounds={"hue": COLOURS}, **SMALL).fit(frame, labels)


def test_a_classifier_takes_text_labels_and_an_own_category() -> None:
    frame, signal = _table()
    labels = np.where(signal > np.median(signal), "high", "low")
    model = OpBoostClassifier(**SMALL).fit(frame, labels)
    assert model.score(frame, labels) > 0.85


@pytest.mark.parametrize("table", [[[1.0]], np.zeros((2, 2)), {"a": [1]}])
def test_what_is_no_data_frame_stays(table: Any) -> None:
    assert as_frame(table) is None


def test_bounds_of_numbers_list_no_categories() -> None:
    assert PublicCategories.of((0, 1)) is None
    assert PublicCategories.of(["a", "b"]) == PublicCategories(("a", "b"), Kind.UNORDERED)


def test_bounds_with_a_time_zone_are_moments_as_the_cells_are() -> None:
    berlin = pd.Timestamp("1970-01-02 01:00", tz="Europe/Berlin")
    assert bounds_in_days((berlin, datetime(1970, 1, 3, tzinfo=UTC))) == (1, 2)
    assert bounds_in_days((date(1970, 1, 2), np.datetime64("1970-01-03"))) == (1, 2)


@pytest.mark.parametrize("cell", [-1, 0.5, 3, 1e300])
def test_an_array_holds_positions_of_public_categories_and_nothing_else(cell: float) -> None:
    encoder = FrameEncoder({}, {"colour": PublicCategories(tuple(COLOURS), Kind.UNORDERED)})
    assert encoder.decode(np.array([[0.0], [2], [np.nan]]), ["colour"])["colour"].tolist()[:2] == ["red", "blue"]
    with pytest.raises(DataError, match=r"their positions 0 to 2; 1 cells are none\. Nothing was released"):
        encoder.decode(np.array([[0.0], [cell]]), ["colour"])


@pytest.mark.parametrize("cells", [[1 + 2j, 3], [10**400, 1], pd.interval_range(0, 2)])
def test_cells_that_are_no_real_numbers_are_refused(cells: Any) -> None:
    """Of complex numbers a part was taken, and huge ones ended in a traceback."""
    frame = pd.DataFrame({"age": pd.Series(cells)})
    with pytest.raises(DataError, match=r"column 'age' holds cells that are not numbers\. Nothing was released"):
        FrameEncoder.learn(frame, None, {}).encode(frame)


def test_a_text_among_numbers_is_refused_without_it() -> None:
    with pytest.raises(DataError, match="column 'age' holds cells that are not numbers") as caught:
        FrameEncoder({}, {}).encode(pd.DataFrame({"age": ["3", "secret"]}))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("bounds", [(0, 1), [False, True]])
@pytest.mark.parametrize("kind", ["bool", "boolean", "object"])
def test_truth_values_of_a_passive_column_are_two_categories(bounds: Any, kind: str) -> None:
    """On a hundred points between 0 and 1 the only two values that there are would be told apart at 2,981 to 1."""
    frame, labels = _table()
    frame = frame.assign(is_new=(np.arange(len(frame)) % 3 == 0).astype(bool)).astype({"is_new": kind})
    model = OpBoostRegressor(bounds={"is_new": bounds}, **SMALL).fit(frame, labels)
    (one,) = model._mechanisms
    assert (one.schema.kind, one.schema.categories) == (Kind.UNORDERED, ("False", "True"))
    assert model.guarantee_.epsilon == model.guarantee_.domain_loss == 2.3
    assert np.isfinite(model.predict(frame)).all()


def test_bounds_of_a_column_of_dates_may_be_texts() -> None:
    frame, labels = _table()
    bounds = {"since": ("2020-01-01", "2022-12-31")}
    (one,) = OpBoostRegressor(bounds=bounds, missing="category", **SMALL).fit(frame, labels)._mechanisms
    assert one.schema.bounds == bounds_in_days((date(2020, 1, 1), date(2022, 12, 31)))
    for text in ("spring", "now", "01.02.2020"):
        with pytest.raises(ParameterError, match=rf"such as 2026-01-31; got '{text}'\. Nothing was released"):
            OpBoostRegressor(bounds={"since": (text, "2022-12-31")}, **SMALL).fit(frame, labels)


def test_a_single_column_of_another_library_is_no_table() -> None:
    assert as_frame(pd.Series([1.0, 2.0])) is None


def test_texts_are_refused_by_estimators_of_rows_without_what_they_are() -> None:
    frame = pd.DataFrame({"job": ["secret", "clerk"] * 20, "age": np.arange(40.0)})
    for table in (frame, frame.astype({"job": "category"})):
        model = DPBoostingClassifier(epsilon=1.0, bounds={"job": (0, 1), "age": (0, 40)})
        with pytest.raises(DataError, match="hold texts or categories, and numbers are needed: job") as refusal:
            model.fit(table, np.arange(40) % 2)
        assert "secret" not in str(refusal.value)


def test_dates_are_refused_by_estimators_of_rows() -> None:
    """They became seconds, or whatever unit a table had, and all of them lay beyond bounds in days."""
    since = pd.Series(pd.date_range("2020-01-01", periods=40))
    tables: tuple[Any, ...] = (
        since.to_frame("since"),
        since.dt.date.to_frame("since"),
        since.astype("timestamp[ms][pyarrow]").to_frame("since"),
        (since - since[0]).to_frame("since").assign(age=1.0),
        since.to_numpy().reshape(-1, 1),
    )
    for table in tables:
        model = DPBoostingClassifier(epsilon=1.0, bounds=(0, 40))
        with pytest.raises(DataError, match=r"hold dates or durations, .* needed: (since|x0)"):
            model.fit(table, np.arange(40) % 2)
    model.fit(np.arange(40.0).reshape(-1, 1), np.arange(40) % 2)
    with pytest.raises(DataError, match="hold dates or durations"):
        model.predict(tables[-1])
