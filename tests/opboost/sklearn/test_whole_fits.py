"""Unknown parameters are refused in the name of the estimator, and a fit that breaks off leaves the model before it.

Neither of model and guarantee is read beside another's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opboost import (
    DPBoostClassifier,
    DPBoostingClassifier,
    FederatedGBDTClassifier,
    InPrivateClassifier,
    OpBoostClassifier,
    SGBDTClassifier,
)
from opboost.errors import ParameterError
from opboost.privacy.guarantee import Guarantee
from opboost.privacy.record_guarantee import RecordGuarantee

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = np.random.default_rng(0).uniform(0, 10, (200, 3))
LABELS = (ROWS[:, 0] > 5).astype(int)
OF_ROWS = (DPBoostClassifier, DPBoostingClassifier, FederatedGBDTClassifier, InPrivateClassifier)


def fitted(kind: Any) -> Any:
    """A model at a large budget, of an estimator whose next budget is a small one."""
    delta = {"delta": 1e-6} if kind in (DPBoostingClassifier, FederatedGBDTClassifier, SGBDTClassifier) else {}
    settings = {} if kind is InPrivateClassifier else {"n_estimators": 2}
    bounds: Any = {0: (0, 10)} if kind is OpBoostClassifier else (0, 10)
    model = kind(epsilon=5.0, bounds=bounds, **delta, **settings).fit(ROWS, LABELS)
    return model.set_params(epsilon=0.01)


def breaking_off(*arguments: Any, **options: Any) -> Any:
    raise KeyboardInterrupt


def break_off(model: Any, monkeypatch: pytest.MonkeyPatch, fit: Callable[..., Any]) -> None:
    """Fit three columns of other rows under classes of other names, and break off: in a round, or at the promise."""
    with monkeypatch.context() as breaking:
        if isinstance(model, OpBoostClassifier):
            model.set_params(callbacks=[breaking_off], bounds={1: (0, 10)})
        else:
            breaking.setattr(RecordGuarantee, "__post_init__", breaking_off)
        with pytest.raises(KeyboardInterrupt):
            fit(model, ROWS[:100] / 2, LABELS[:100])


def promised(model: Any) -> tuple[float, str]:
    promise: Guarantee | RecordGuarantee = model.guarantee_
    return promise.epsilon, str(promise)


@pytest.mark.parametrize("kind", [OpBoostClassifier, SGBDTClassifier, *OF_ROWS])
def test_a_fit_that_breaks_off_leaves_model_and_promise_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    model = fitted(kind)
    before, said, predicted = model.model_, promised(model), model.predict(ROWS)
    break_off(model, monkeypatch, type(model).fit)
    assert model.model_ is before
    assert promised(model) == said
    np.testing.assert_array_equal(model.predict(ROWS), predicted)


@pytest.mark.parametrize("kind", [OpBoostClassifier, *OF_ROWS])
def test_a_fit_that_is_not_whole_would_promise_what_another_model_keeps(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """The broken twin of the test above. S-GBDT is whole twice, for a stream may begin with `partial_fit`."""
    model = fitted(kind)
    before, said = model.model_, promised(model)
    break_off(model, monkeypatch, type(model).fit.__wrapped__)
    assert (model.model_ is before) is not (promised(model) == said)


def test_a_stream_whose_beginning_breaks_off_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SGBDTClassifier(epsilon=1.0, bounds=(0, 10), n_estimators=2)
    break_off(model, monkeypatch, type(model).partial_fit)
    assert not hasattr(model, "model_")
    assert len(model.partial_fit(ROWS, LABELS).model_.trees) == 2


@pytest.mark.parametrize("kind", [OpBoostClassifier, SGBDTClassifier, *OF_ROWS])
def test_a_fit_counts_in_numbers_of_python(kind: Any) -> None:
    """Small numbers of NumPy overflow: three trees were split among 253."""
    settings = {"random_state": np.uint8(3)} | ({} if kind is InPrivateClassifier else {"n_estimators": np.uint8(3)})
    model = fitted(kind).set_params(**settings).fit(ROWS, LABELS)
    assert all(model.get_params()[name] is value for name, value in settings.items())
    whole = fitted(kind).set_params(**{name: int(value) for name, value in settings.items()}).fit(ROWS, LABELS)
    assert promised(model) == promised(whole)


@pytest.mark.parametrize("kind", [OpBoostClassifier, SGBDTClassifier, *OF_ROWS])
@pytest.mark.parametrize("value", ["x", [0.1], 10**400, 1j], ids=["text", "list", "huge", "complex"])
def test_a_parameter_that_should_be_a_number_and_is_none_is_refused_by_its_name(kind: Any, value: object) -> None:
    names = {"epsilon", "learning_rate", "max_bin"} & kind().get_params().keys()
    for name in names:
        model = kind(bounds={0: (0, 10)} if kind is OpBoostClassifier else (0, 10))
        if kind is FederatedGBDTClassifier:
            model.set_params(epsilon=1.0, delta=1e-6)
        with pytest.raises(ParameterError, match=name):
            model.set_params(**{name: value}).fit(ROWS, LABELS)
        assert not hasattr(model, "guarantee_")


def test_what_is_no_number_is_told_with_what_is_allowed() -> None:
    with pytest.raises(ParameterError, match=r"^learning_rate must be a number; got 'x'$"):
        DPBoostClassifier(epsilon=1.0, learning_rate="x", bounds=(0, 10)).fit(ROWS, LABELS)
    with pytest.raises(ParameterError, match=r"^learning_rate must be a number; got None$"):
        DPBoostClassifier(epsilon=1.0, learning_rate=None, bounds=(0, 10)).fit(ROWS, LABELS)


@pytest.mark.parametrize(("other", "own"), [("eta", "learning_rate"), ("num_boost_round", "n_estimators")])
def test_what_other_systems_call_a_parameter_leads_to_it(other: str, own: str) -> None:
    with pytest.raises(TypeError, match=rf"'{other}', and nothing was trained; did you mean '{own}'\?$"):
        OpBoostClassifier(**{other: 1})


@pytest.mark.parametrize("kind", [OpBoostClassifier, SGBDTClassifier, *OF_ROWS])
def test_an_unknown_parameter_is_refused_in_the_name_of_the_estimator(kind: Any) -> None:
    name = kind.__name__
    near = "reg_lambd" if "reg_lambda" in kind().get_params() else "random_stat"
    with pytest.raises(
        TypeError, match=rf"^{name}\(\) .*argument '{near}', and nothing was trained; did you mean '{near}.'"
    ):
        kind(**{near: 1})
    with pytest.raises(TypeError, match=rf"^{name}\(\) .*'verbosity', and .*; it takes .*epsilon, .*random_state"):
        kind(verbosity=1)
    with pytest.raises(TypeError, match=rf"^{name}\(\) too many positional arguments"):
        kind(1.0)
    with pytest.raises(TypeError, match=rf"^{name}\.fit\(\) .*keyword argument 'sample_weights'"):
        kind().fit(ROWS, LABELS, sample_weights=LABELS)


def test_what_a_fit_takes_is_listed() -> None:
    with pytest.raises(
        TypeError, match=r"^DPBoostingClassifier\.fit\(\) .*'sample_weight', and nothing was trained; it takes X, y$"
    ):
        DPBoostingClassifier().fit(ROWS, LABELS, sample_weight=LABELS)  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"^OpBoostClassifier\.fit\(\) .*'sample_weigth', .*; did you mean 'sample_weight'"
    ):
        OpBoostClassifier().fit(ROWS, LABELS, sample_weigth=LABELS)  # type: ignore[call-arg]
