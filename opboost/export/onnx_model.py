"""Models to ONNX, for the runtimes that read it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from opboost.errors import ParameterError
from opboost.export.link_functions import LinkFunction, exportable, link_function
from opboost.export.xgboost_features import feature_names
from opboost.trees.tree import LEAF, PRESENT, Ensemble, Tree

if TYPE_CHECKING:
    import onnx

# The first version of ONNX's operators for machine learning whose trees take doubles and sets of categories.
OPSETS = {"": 21, "ai.onnx.ml": 5}
IR_VERSION = 10

# Of the operator TreeEnsemble: a node's test, and how trees are combined.
_AT_MOST, _MEMBER, _SUM = 0, 6, 1

_OPERATORS: dict[LinkFunction, str] = {
    "identity": "Identity",
    "sigmoid": "Sigmoid",
    "softmax": "Softmax",
    "exponential": "Exp",
}


def to_onnx(ensemble: object) -> onnx.ModelProto:
    """Make an ONNX model of an ensemble. Needs the package `onnx`.

    Parameters
    ----------
    ensemble : Ensemble, JointModel or fitted estimator

    Returns
    -------
    onnx.ModelProto
        Input ``features``, doubles of shape ``(n_rows, n_features)``, NaN for missing; the features' names stand in the
        model's metadata, in order. An owner's test is its answer, 0 for left and 1 for right. Outputs ``scores`` and
        ``predictions``, both of shape ``(n_rows, n_outputs)``. Trees and their sum are in doubles.

    Raises
    ------
    ParameterError
        If the loss has no link function here, or the ensemble no features.
    ImportError
        If `onnx` is not installed.

    Notes
    -----
    Privacy: thresholds on A's own columns, leaf values and the ranks of the owners' tests go with the model.
    """
    try:
        from onnx import TensorProto, checker, helper
    except ImportError:
        raise ImportError(
            "to_onnx needs the package onnx, which is not installed; `pip install 'opboost[export]'` installs it. "
            "No model was exported"
        ) from None
    ensemble = exportable(ensemble)
    operator = _OPERATORS[link_function(ensemble.loss)]
    if not ensemble.features:
        raise ParameterError("an ONNX model needs a feature, and this one has none. No model was exported")
    n_outputs = ensemble.loss.n_outputs
    nodes = [
        helper.make_node("TreeEnsemble", ["features"], ["sums"], domain="ai.onnx.ml", **_tree_ensemble(ensemble)),
        helper.make_node("Add", ["sums", "base_scores"], ["scores"]),
        helper.make_node(operator, ["scores"], ["predictions"]),
    ]
    widths = {"features": len(ensemble.features), "scores": n_outputs, "predictions": n_outputs}
    arrays = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [None, n]) for name, n in widths.items()]
    base_scores = helper.make_tensor("base_scores", TensorProto.DOUBLE, [1, n_outputs], ensemble.base_scores)
    graph = helper.make_graph(nodes, "ensemble", arrays[:1], arrays[1:], [base_scores])
    opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="opboost")
    names = feature_names(ensemble.features)
    helper.set_model_props(model, {f"feature_{i}": name for i, name in enumerate(names)})
    checker.check_model(model)
    return model


def _tree_ensemble(ensemble: Ensemble) -> dict[str, Any]:
    """Attributes of the operator TreeEnsemble, which counts inner nodes and leaves each for themselves."""
    from onnx import TensorProto, helper

    trees = ensemble.trees or (LEAF,) * ensemble.loss.n_outputs
    flat = replace(ensemble, trees=tuple(map(_with_a_split, trees))).flat
    is_leaf = flat.is_leaf
    inner = np.flatnonzero(~is_leaf)
    numbers = np.where(is_leaf, np.cumsum(is_leaf), np.cumsum(~is_leaf)) - 1
    lefts, rights = flat.lefts[inner], flat.lefts[inner] + 1
    modes = np.where(flat.sets[inner] < 0, _AT_MOST, _MEMBER)
    sets = flat.sets[inner[modes == _MEMBER]]
    members = [number for row in sets for number in (*np.flatnonzero(flat.members[row]).astype(float), np.nan)]
    integers = {
        "nodes_featureids": flat.columns[inner],
        "nodes_missing_value_tracks_true": flat.missing_left[inner],
        "nodes_truenodeids": numbers[lefts],
        "nodes_trueleafs": is_leaf[lefts],
        "nodes_falsenodeids": numbers[rights],
        "nodes_falseleafs": is_leaf[rights],
        "tree_roots": numbers[flat.roots],
        "leaf_targetids": flat.node_outputs[is_leaf],
    }
    doubles = {"nodes_splits": flat.thresholds[inner], "leaf_weights": flat.values[is_leaf]}
    doubles |= {"membership_values": np.array(members)} if members else {}
    tensors = [(name, TensorProto.DOUBLE, values) for name, values in doubles.items()]
    tensors += [("nodes_modes", TensorProto.UINT8, modes.astype(np.uint8))]
    return {
        **{name: values.astype(int).tolist() for name, values in integers.items()},
        **{name: helper.make_tensor(name, kind, [len(values)], values) for name, kind, values in tensors},
        "n_targets": ensemble.loss.n_outputs,
        "aggregate_function": _SUM,
    }


def _with_a_split(tree: Tree) -> Tree:
    """A tree whose root is no leaf, for the operator has no others: both sides of a split may have one value."""
    if tree.n_nodes > 1:
        return tree
    return Tree(
        columns=np.array([0, -1, -1], np.int32),
        thresholds=np.array([PRESENT, 0.0, 0.0]),
        missing_left=np.zeros(3, np.bool_),
        lefts=np.array([1, 0, 0], np.int32),
        rights=np.array([2, 0, 0], np.int32),
        values=np.array([0.0, *tree.values.repeat(2)]),
        gains=np.zeros(3),
        covers=np.zeros(3),
    )
