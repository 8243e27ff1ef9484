"""Public limits of a recipe's trees, which a worker enforces on what its coordinator sends and asks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRules:
    """Limits of the trees of a recipe and of the questions about them.

    Attributes
    ----------
    n_trees : int
    max_depth : int
        Most levels of splits.
    max_value : float
        Largest absolute value of a leaf.
    batch_size : int
        Trees on the same gradients: tree t, from 0, is for the output ``t % batch_size``.
    is_complete : bool
        Whether every level splits as a whole. All trees of a batch may then be grown before the first is finished;
        otherwise a tree is finished before the next one begins.
    n_histogram_nodes : int
        Most nodes of a question for histograms; 0 where none are asked for.
    n_placements : int
        Trees, from the first one on, after which the cells may be moved, once each; 0 for never.
    """

    n_trees: int
    max_depth: int
    max_value: float
    batch_size: int = 1
    is_complete: bool = True
    n_histogram_nodes: int = 0
    n_placements: int = 0
