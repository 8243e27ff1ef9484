"""Stages on the wire, after the first rounds: boosting is divided where the coordinator announces a smaller bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise

from opboost.horizontal.recommended.plan import Stage
from opboost.horizontal.recommended.residual_size import tightening_places
from opboost.trees.tree import Tree

# Stages whose trees are steps of the model.
STEP_KINDS = ("counts", "sums")


def wire_stages(stages: tuple[Stage, ...], *, is_numbers: bool) -> tuple[Stage, ...]:
    """The stages of a plan; on numbers, trees of a single leaf divide the last one, each of which announces a bound."""
    if not (is_numbers and stages):
        return stages
    *others, sums = stages
    ends = [0, *tightening_places(sums.n_trees), sums.n_trees]
    first, *rest = [replace(sums, n_trees=end - begin) for begin, end in pairwise(ends)]
    bound = Stage("bound", 1, 0.0, 0.0)
    return (*others, first, *chain.from_iterable((bound, part) for part in rest))


def bound_trees(stages: Sequence[Stage]) -> list[int]:
    """Numbers of the trees that announce a bound."""
    begins = accumulate((stage.n_trees for stage in stages), initial=0)
    return [begin for begin, stage in zip(begins, stages, strict=False) if stage.kind == "bound"]


def model_steps(stages: Sequence[Stage], trees: Sequence[Tree], n_outputs: int) -> list[Tree]:
    """The trees that are steps of the model, in the unit of the first one."""
    begin, unit, steps = 0, 1.0, list[Tree]()
    for stage in stages:
        end = begin + stage.n_trees * n_outputs
        if stage.kind == "bound":
            unit *= float(trees[begin].values[0])
        elif stage.kind in STEP_KINDS:
            steps += [tree.scaled(unit) for tree in trees[begin:end]]
        begin = end
    return steps
