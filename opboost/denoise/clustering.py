"""Clusters of rows, at which the fit of latent classes begins."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Clustering = Callable[[NDArray[np.float32], int, int], NDArray[np.int32]]
"""Puts points into so many clusters at most, by a seed."""


@cache
def _thread_pools() -> ThreadpoolController:
    """Thread pools of this process, looked up once: that takes as long as k-means on a thousand rows."""
    import sklearn.cluster  # noqa: F401  # loads them
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def k_means(points: NDArray[np.float32], n_clusters: int, seed: int) -> NDArray[np.int32]:
    """Clusters of points, shape ``(n_points,)``, by scikit-learn's k-means on one thread."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    # Threads that wait for a busy core take ten times as long as one alone; and sums do not depend on their number.
    with warnings.catch_warnings(), _thread_pools().limit(limits=1, user_api="openmp"):
        # Points that differ by less than single precision tells are one cluster: the others are classes of few records.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found: NDArray[np.int32] = KMeans(n_clusters, n_init=1, max_iter=10, random_state=seed).fit_predict(points)
    return found
