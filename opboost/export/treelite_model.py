"""Models to treelite, which compiles trees and serves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opboost.export.link_functions import exportable, link_function
from opboost.trees.tree import LEAF

if TYPE_CHECKING:
    import treelite


def to_treelite(ensemble: object) -> treelite.Model:
    """Make a treelite model of an ensemble. Needs the package `treelite`.

    Parameters
    ----------
    ensemble : Ensemble, JointModel or fitted estimator

    Returns
    -------
    treelite.Model
        It takes the ensemble's features in their order, NaN for missing; an owner's test is its answer, 0 for left and
        1 for right. Thresholds and leaves are doubles.

    Raises
    ------
    ParameterError
        If the loss has no link function here.
    ImportError
        If `treelite` is not installed.

    Notes
    -----
    Privacy: thresholds on A's own columns and leaf values go with the model; covers and ranks do not.
    """
    try:
        from treelite import model_builder
    except ImportError:
        raise ImportError(
            "to_treelite needs the package treelite, which is not installed; `pip install 'opboost[export]'` installs "
            "it. No model was exported"
        ) from None
    ensemble = exportable(ensemble)
    n_outputs, link = ensemble.loss.n_outputs, link_function(ensemble.loss)
    trees = ensemble.trees or (LEAF,) * n_outputs
    # Several outputs are classes of one target, or targets of one number each.
    of_tree, zeros = [i % n_outputs for i in range(len(trees))], [0] * len(trees)
    target_id, class_id = (zeros, of_tree) if link == "softmax" else (of_tree, zeros)
    builder = model_builder.ModelBuilder(
        threshold_type="float64",
        leaf_output_type="float64",
        metadata=model_builder.Metadata(
            num_feature=len(ensemble.features),
            task_type={"sigmoid": "kBinaryClf", "softmax": "kMultiClf"}.get(link, "kRegressor"),
            average_tree_output=False,
            num_target=1 if link == "softmax" else n_outputs,
            num_class=[n_outputs] if link == "softmax" else [1] * n_outputs,
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=model_builder.TreeAnnotation(num_tree=len(trees), target_id=target_id, class_id=class_id),
        postprocessor=model_builder.PostProcessorFunc(name=link),
        base_scores=ensemble.base_scores.tolist(),
    )
    for tree in trees:
        builder.start_tree()
        for node in range(tree.n_nodes):
            builder.start_node(node)
            children = {"left_child_key": int(tree.lefts[node]), "right_child_key": int(tree.rights[node])}
            asked = {"feature_id": int(tree.columns[node]), "default_left": bool(tree.missing_left[node]), **children}
            if tree.is_leaf[node]:
                builder.leaf(float(tree.values[node]))
            elif node in tree.left_categories:
                categories = list(tree.left_categories[node])
                builder.categorical_test(category_list=categories, category_list_right_child=False, **asked)
            else:
                builder.numerical_test(threshold=float(tree.thresholds[node]), opname="<=", **asked)
            builder.end_node()
        builder.end_tree()
    return builder.commit()
