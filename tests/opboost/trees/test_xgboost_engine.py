"""A GPU for XGBoost as the engine: what is missing is named before anything is trained or released."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opboost import OpBoostClassifier
from opboost.errors import ParameterError
from opboost.metrics import log_loss
from opboost.trees import xgboost_engine
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Logistic
from opboost.trees.xgboost_engine import has_cuda_device, load_xgboost, training_settings

xgboost = pytest.importorskip("xgboost")

LIMITS = ColumnConstraints().on(["a"], are_categorical=[False], max_delta_step=0.0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_device_is_passed_through(device: Any) -> None:
    settings = training_settings(BoostingParameters(device=device), LIMITS, Logistic(), None)
    assert settings.get("device", "cpu") == device


def test_a_small_table_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, trained = [], xgboost.train
    monkeypatch.setattr(
        xgboost, "train", lambda chosen, *rest, **more: (asked.append(chosen), trained(chosen, *rest, **more))[1]
    )
    X = np.random.default_rng(0).random((60, 2))
    OpBoostClassifier(engine="xgboost", n_estimators=2).fit(X, X[:, 0] > 0.5)
    # The settings are tried before.
    assert [chosen["nthread"] for chosen in asked] == [1, 1]


def test_an_xgboost_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": False})
    with pytest.raises(ParameterError, match="install `xgboost` in place of `xgboost-cpu`"):
        load_xgboost("cuda")


@pytest.mark.parametrize(("status", "n_devices"), [(100, 0), (0, 0), (0, 1)])
def test_a_machine_without_a_gpu_is_named(monkeypatch: pytest.MonkeyPatch, status: int, n_devices: int) -> None:
    def count(found: Any) -> int:
        found._obj.value = n_devices
        return 0

    driver = SimpleNamespace(cuInit=lambda _: status, cuDeviceGetCount=count)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": True})
    assert has_cuda_device() == (n_devices > 0)
    if n_devices:
        assert load_xgboost("cuda") is xgboost
        return
    with pytest.raises(ParameterError, match="needs an NVIDIA GPU and its driver"):
        load_xgboost("cuda")


def test_a_machine_without_a_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> None:
        raise OSError

    monkeypatch.setattr(xgboost_engine.ctypes, "CDLL", absent)
    assert not has_cuda_device()


def test_the_native_engine_stays_on_the_processor() -> None:
    with pytest.raises(ParameterError, match="device: cuda goes with engine: xgboost"):
        OpBoostClassifier(device="cuda").fit(np.arange(9.0)[:, None], np.arange(9) > 4)


def test_trees_of_dart_that_were_stopped_early_have_the_weights_of_the_best_round() -> None:
    draw = np.random.default_rng(4)
    X = draw.normal(size=(400, 3))
    y = (X[:, 0] + 3 * draw.normal(size=400) > 0).astype(int)
    dart = {"booster": "dart", "rate_drop": 0.3}
    model = OpBoostClassifier(engine="xgboost", **dart, n_estimators=40, early_stopping_rounds=5, random_state=1)
    model.fit(X[:250], y[:250], eval_set=[(X[250:], y[250:])])
    scores = model.evals_result_["logloss"]
    assert len(scores) > model.best_iteration_ + 1
    found = log_loss(y[250:].astype(float), model.predict_proba(X[250:])[:, 1])
    assert found == pytest.approx(min(scores), abs=1e-5)
    assert found == pytest.approx(scores[model.best_iteration_], abs=1e-5)
