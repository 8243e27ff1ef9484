"""What an additive model of two classes could score at most, if noise met nothing but its labels.

An oracle is told for nothing what a private training has to pay for: quantiles of all columns, which records share
which cells, and the exact additive model, about which it linearises the loss. It spends the whole budget once, on the
sums of the labels' gradients per cell, bounded by .5, and takes the best linear estimate under Gaussian priors of
equal or neighbouring cells. Cells and priors are those that do best on the test rows themselves. So no additive model
with a budget can be expected to do better, and boosting, which pays for all of this, does worse.

    python scripts/reproduce/additive_oracle.py --tables adult --epsilons .1,.5,1
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
from private_boosting import SHARED, Table, load
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold

from opboost.horizontal.noise.query_account import query_account

_CELLS, _PRIOR_STDS = (8, 16, 32, 64, 128), (0.2, 0.3, 0.5, 1.0, 2.0)
_LARGEST_GRADIENT, _EXACT_PENALTY = 0.5, 5.0

# Precision of a difference between neighbouring cells and of a cell itself, where a prior is smooth.
_SMOOTH = 3.0, 0.1


class Cells:
    """Indicators of each column's cells, shape ``(n_rows, n_cells)``, and precisions of two priors on their effects."""

    def __init__(self, table: Table, n_cells: int) -> None:
        parts, plain, smooth = [], [], []
        for column, values in enumerate(table.X.T):
            is_category = column in table.categories
            codes = values
            if not is_category:
                levels = np.linspace(0, 1, n_cells + 1)[1:-1]
                cuts = np.unique(np.nanquantile(values, levels))
                codes = np.where(np.isnan(values), np.nan, np.searchsorted(cuts, values, side="right"))
            _, places = np.unique(codes, return_inverse=True)
            parts.append(np.eye(places.max() + 1)[places])
            plain.append(np.eye(parts[-1].shape[1]))
            steps = np.diff(plain[-1], axis=0)
            smooth.append(plain[-1] if is_category else _SMOOTH[1] * plain[-1] + _SMOOTH[0] * steps.T @ steps)
        self.indicators = np.concatenate(parts, axis=1)
        self.precisions = {"equal": _diagonal(plain), "neighbouring": _diagonal(smooth)}


def _diagonal(blocks: list[np.ndarray]) -> np.ndarray:
    whole = np.zeros((sum(len(block) for block in blocks),) * 2)
    start = 0
    for block in blocks:
        whole[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    return whole


def exact_model(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Effects of the cells without noise by Newton's method, the Hessian and the gradients' bounded sums there."""
    effects, start = np.zeros(X.shape[1]), logit(y.mean())
    for _ in range(8):
        shares = expit(X @ effects + start)
        hessian = (X.T * (shares * (1 - shares))) @ X
        grad = X.T @ (shares - y) + _EXACT_PENALTY * effects
        effects = effects - np.linalg.solve(hessian + _EXACT_PENALTY * np.eye(len(effects)), grad)
    residuals = y - expit(X @ effects + start)
    return effects, hessian, X.T @ np.clip(residuals, -_LARGEST_GRADIENT, _LARGEST_GRADIENT)


def scores(table: Table, epsilons: list[float], n_folds: int, n_seeds: int) -> dict[float, dict[tuple, float]]:
    """Mean AUC by epsilon, then by cells per column, prior and its deviation."""
    found: dict[float, dict[tuple, list[float]]] = {epsilon: defaultdict(list) for epsilon in epsilons}
    folds = list(KFold(5, shuffle=True, random_state=0).split(table.X))[:n_folds]
    for n_cells in _CELLS:
        cells = Cells(table, n_cells)
        for train, test in folds:
            X, y = cells.indicators[train], table.y[train].astype(float)
            effects, hessian, residual_sums = exact_model(X, y)
            for epsilon in epsilons:
                multiplier = query_account(1, epsilon=epsilon, delta=1 / len(train)).multiplier
                std = _LARGEST_GRADIENT * np.sqrt(table.X.shape[1]) * multiplier
                for seed in range(n_seeds):
                    noise = np.random.default_rng(seed).normal(0, std, len(effects))
                    told = hessian @ (hessian @ effects + residual_sums + noise) / std**2
                    for (prior, precision), prior_std in _priors(cells):
                        estimate = np.linalg.solve(hessian @ hessian / std**2 + precision / prior_std**2, told)
                        auc = roc_auc_score(table.y[test], cells.indicators[test] @ estimate)
                        found[epsilon][n_cells, prior, prior_std].append(auc)
    return {epsilon: {key: float(np.mean(aucs)) for key, aucs in by.items()} for epsilon, by in found.items()}


def _priors(cells: Cells) -> list[tuple[tuple[str, np.ndarray], float]]:
    return [(prior, prior_std) for prior in cells.precisions.items() for prior_std in _PRIOR_STDS]


def main() -> None:
    """Print the best AUC of each table and epsilon, and with what."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=lambda text: text.split(","), default=["adult"])
    parser.add_argument(
        "--epsilons", type=lambda text: [float(each) for each in text.split(",")], default=[0.1, 0.5, 1]
    )
    parser.add_argument("--folds", type=int, default=5, help="of five")
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    for name in arguments.tables:
        best = scores(load(name, SHARED), arguments.epsilons, arguments.folds, arguments.seeds)
        for epsilon, by in best.items():
            key = max(by, key=lambda key: by[key])
            print(f"{name} epsilon {epsilon:g}: AUC {by[key]:.4f} with {key[0]} cells, {key[1]} priors of {key[2]:g}")


if __name__ == "__main__":
    main()
