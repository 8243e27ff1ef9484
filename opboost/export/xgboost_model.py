"""Models to and from XGBoost, so that its tools (SHAP values, plots, other languages) work on an ensemble.

Two things differ between the libraries::

                    ours                              XGBoost
    test            x <= threshold, x in float64      x < condition, x rounded to float32
    base score      a raw score per output            binary: a probability; several classes: one number before 3.1

A test is translated so that every number that float32 can hold goes the same way. Of a base score, whatever XGBoost's
form of it cannot express goes into the leaves of the first round. XGBoost adds leaves in float32, so scores agree to a
few units of 2^-24 of their size.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from opboost.arrays import Values
from opboost.errors import ModelFileError, OpBoostError, ParameterError
from opboost.export.link_functions import exportable, link_function
from opboost.export.xgboost_features import FEATURES, feature_names, feature_types, read_features
from opboost.export.xgboost_objectives import SECTIONS, objective_settings, read_objective
from opboost.trees.losses import Logistic, Loss, Quantiles, Softmax
from opboost.trees.losses.numbers import LEAST_MEAN
from opboost.trees.tree import LEAF, Ensemble, Tree
from opboost.trees.xgboost_numbers import PROBABILITIES, Singles, margins, probability_of, singles
from opboost.trees.xgboost_trees import tree_from_dict, tree_to_dict

if TYPE_CHECKING:
    import xgboost


# A base score is off by this share at most before leaves make up for it; about what a probability in float32 resolves.
BASE_TOLERANCE = 2.0**-21

# More features or classes than this are taken for a damaged file.
MAX_SIZE = 2**24


def to_xgboost(ensemble: object) -> xgboost.Booster:
    """Make an XGBoost model of an ensemble. Needs XGBoost 2.1 or later.

    Parameters
    ----------
    ensemble : Ensemble, JointModel or fitted estimator
        Its columns of categories are to be given to XGBoost as such (``feature_types`` "c").

    Returns
    -------
    xgboost.Booster
        It predicts from rows of the ensemble's features, in their order, under the names ``booster.feature_names``:
        a letter that XGBoost does not take in a name is ``_`` there, and an owner's test is named after its question.

    Raises
    ------
    ParameterError
        If the ensemble has no features, numbers beyond float32, or an objective unknown here.
    ImportError
        If XGBoost is not installed.

    Notes
    -----
    XGBoost rounds its input to float32. What float32 holds exactly takes the same way through every tree; any other
    number may cross a threshold that lies within its rounding, a share of 6e-8. XGBoost's `DMatrix` refuses infinities.

    An owner's test stays the owner's: the column of the exported model is its answer, 0 for left and 1 for right, as
    `opboost.split_tests.feature_matrix` puts it into A's matrix. SHAP values are then those of the answers.

    Privacy: covers, which are statistics of the labels, and the owners' ranks go with the model; it is A's alone. SHAP
    values are shares of covers: those of a model that was saved without statistics are NaN.
    """
    try:
        import xgboost
    except ImportError:
        raise ImportError(
            "to_xgboost needs XGBoost, which is not installed; `pip install 'opboost[xgboost]'` installs it. "
            "No model was exported"
        ) from None
    version = [int(number) for number in xgboost.__version__.split(".")[:2]] + [0]
    document = json.dumps(_ensemble_to_dict(exportable(ensemble), version=version), ensure_ascii=False)
    return xgboost.Booster(model_file=bytearray(document.encode()))


def from_xgboost(model: xgboost.Booster | xgboost.XGBModel | Path | str) -> Ensemble:
    """Make an ensemble of an XGBoost model.

    Parameters
    ----------
    model : xgboost.Booster, xgboost.XGBModel or path
        A trained model, or a JSON file that XGBoost's `save_model` wrote, which is read without XGBoost.

    Returns
    -------
    Ensemble
        With all trees, also those behind `best_iteration` of a model that stopped early; to leave them out as
        scikit-learn's interface does, import ``booster[: booster.best_iteration + 1]``. Any finite row goes the way it
        goes in XGBoost, its rounding to float32 included.

    Raises
    ------
    ModelFileError
        If the model is malformed, or holds what an ensemble cannot: linear models, leaves of several targets, other
        objectives.
    ParameterError
        If it is neither a model nor a path.
    """
    document = _document(model)
    name = str(model) if isinstance(model, (Path, str)) else "the model"
    try:
        return _ensemble_from_dict(document)
    except OpBoostError as error:
        raise ModelFileError(f"{name} cannot be imported from XGBoost: {error}") from None
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise ModelFileError(
            f"{name} cannot be imported from XGBoost: it is malformed, {type(error).__name__} in its structure"
        ) from None


def _ensemble_to_dict(ensemble: Ensemble, *, version: list[int]) -> dict[str, Any]:
    loss, n_features = ensemble.loss, len(ensemble.features)
    if loss.name not in SECTIONS:
        raise ParameterError(
            f"only {', '.join(SECTIONS)} can be exported; this model has {loss.name}. No model was exported"
        )
    if n_features == 0:
        raise ParameterError("XGBoost has no models without features, and this one has none. No model was exported")
    base, rest = _split_base_scores(ensemble, has_vectors=version >= [3, 1])
    trees = _with_rest(ensemble, rest)
    n_classes = str(loss.n_outputs if isinstance(loss, Softmax) else 0)
    gbtree = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": list(range(0, len(trees) + 1, loss.n_outputs)),
        "tree_info": [number % loss.n_outputs for number in range(len(trees))],
        "trees": [tree_to_dict(tree, number=number, n_features=n_features) for number, tree in enumerate(trees)],
    }
    names = feature_names(ensemble.features)
    is_renamed = names != [feature.name for feature in ensemble.features]
    learner = {
        "attributes": {FEATURES: quote(json.dumps([asdict(f) for f in ensemble.features]))} if is_renamed else {},
        "feature_names": names,
        "feature_types": feature_types(ensemble),
        "gradient_booster": {"model": gbtree, "name": "gbtree"},
        "learner_model_param": {
            "base_score": json.dumps(base.tolist()) if version >= [3, 1] else str(base[0]),
            "boost_from_average": "0",
            "num_class": n_classes,
            "num_feature": str(n_features),
            "num_target": str(loss.n_outputs if isinstance(loss, Quantiles) else 1),
        },
        "objective": {"name": loss.name, **objective_settings(loss)},
    }
    return {"learner": learner, "version": version}


def _split_base_scores(ensemble: Ensemble, *, has_vectors: bool) -> tuple[Singles, Values]:
    """Base scores as XGBoost writes them, and what is left of ours: nothing, but for some unusual ones."""
    wanted, link = ensemble.base_scores, link_function(ensemble.loss)
    if link == "sigmoid":
        base = probability_of(wanted[0])
        left = wanted - margins(base)
    elif link == "exponential":
        base = singles(np.exp(wanted), "base scores")
        left = wanted - np.log(base.astype(np.float64))
    else:
        base = singles(wanted if has_vectors else wanted[:1], "base scores")
        left = wanted - base
    return base, np.where(np.abs(left) > BASE_TOLERANCE * np.maximum(np.abs(wanted), 1), left, 0)


def _with_rest(ensemble: Ensemble, rest: Values) -> tuple[Tree, ...]:
    """The trees, their first round raised by the rest of the base scores."""
    if not rest.any():
        return ensemble.trees
    first = ensemble.trees[: len(rest)] or (LEAF,) * len(rest)
    raised = (replace(t, values=np.where(t.is_leaf, t.values + r, 0)) for t, r in zip(first, rest, strict=True))
    return (*raised, *ensemble.trees[len(rest) :])


def _document(model: xgboost.Booster | xgboost.XGBModel | Path | str) -> Any:
    if isinstance(model, (Path, str)):
        return _read_json(Path(model))
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    if not hasattr(booster, "save_raw"):
        raise ParameterError(
            f"a model to import is a Booster, an XGBModel or a path; got {type(model).__name__}. No model was imported"
        )
    return json.loads(booster.save_raw("json"))


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ModelFileError(
            f"{path} is not a JSON file. For XGBoost's binary files, import `xgboost.Booster(model_file=...)` if you "
            "trust their source: damaged ones may end the process. No model was imported"
        ) from None


def _ensemble_from_dict(document: Any) -> Ensemble:
    if not isinstance(document, dict) or "learner" not in document:
        raise ModelFileError("it is no XGBoost model, for it has no learner")
    learner = document["learner"]
    parameters, booster = learner["learner_model_param"], learner["gradient_booster"]
    loss = read_objective(learner["objective"], _count(parameters["num_class"]))
    if int(parameters.get("num_target", 1)) > 1 and not isinstance(loss, Quantiles):
        raise ModelFileError("it has several targets; an ensemble has one")
    features = read_features(learner, _count(parameters["num_feature"]))
    if booster["name"] not in ("gbtree", "dart"):
        raise ModelFileError(f"its booster is {booster['name']}; an ensemble is made of gbtree or dart")
    model = (booster["gbtree"] if booster["name"] == "dart" else booster)["model"]
    trees = [tree_from_dict(tree, n_features=len(features)) for tree in model["trees"]]
    if booster["name"] == "dart":
        trees = [tree.scaled(float(weight)) for tree, weight in zip(trees, booster["weight_drop"], strict=True)]
    base_scores = _base_scores(json.loads(parameters["base_score"]), loss, is_clipped=document["version"] >= [3, 2])
    return Ensemble(_by_round(trees, model["tree_info"], loss.n_outputs), base_scores, loss, features)


def _base_scores(written: float | list[float], loss: Loss, *, is_clipped: bool) -> Values:
    base = np.array(written, dtype=np.float32).reshape(-1)
    if isinstance(loss, Logistic):
        scores = margins(np.clip(base, *PROBABILITIES) if is_clipped else base)
    elif link_function(loss) == "exponential":
        # XGBoost begins at a mean of 0 where all labels are 0.
        scores = np.log(np.maximum(base.astype(np.float64), LEAST_MEAN))
    else:
        scores = base.astype(np.float64)
    return np.repeat(scores, loss.n_outputs) if len(scores) == 1 else scores


def _count(text: str) -> int:
    count = int(text)
    if not 0 <= count <= MAX_SIZE:
        raise ModelFileError(f"it counts {count} features or classes; {MAX_SIZE} at most are read")
    return count


def _by_round(trees: Sequence[Tree], outputs: Sequence[int], n_outputs: int) -> tuple[Tree, ...]:
    """The trees with those of each output dealt out in turn; a forest's rounds hold several of each, side by side."""
    hands: list[list[Tree]] = [[] for _ in range(n_outputs)]
    for tree, output in zip(trees, outputs, strict=True):
        if not 0 <= output < n_outputs:
            raise ModelFileError(f"a tree is for output {output}; there are {n_outputs}")
        hands[output].append(tree)
    if len({len(hand) for hand in hands}) > 1:
        raise ModelFileError("its outputs have different numbers of trees")
    return tuple(tree for dealt in zip(*hands, strict=True) for tree in dealt)
