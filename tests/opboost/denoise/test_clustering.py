"""Clusters at which a fit begins: those that are there, the same for a seed, and as many as were asked for at most."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_info

from opboost.denoise.clustering import k_means


def test_groups_that_lie_far_apart_are_the_clusters() -> None:
    middles = np.repeat(np.arange(5, dtype=np.float32) * 100, 40)
    points = np.column_stack([middles, -middles]) + np.random.default_rng(0).normal(size=(200, 2))
    found = k_means(points.astype(np.float32), 5, 3)
    assert len({(middle, cluster) for middle, cluster in zip(middles, found, strict=True)}) == 5
    np.testing.assert_array_equal(found, k_means(points.astype(np.float32), 5, 3))


def test_points_that_hardly_differ_are_fewer_clusters_without_a_warning() -> None:
    points = np.full((50, 2), 1000, np.float32)
    points[:25] += np.float32(1e-4)
    assert len(np.unique(k_means(points, 4, 0))) <= 4


def test_threads_are_as_many_as_before_afterwards() -> None:
    before = [one["num_threads"] for one in threadpool_info()]
    k_means(np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32), 3, 0)
    assert [one["num_threads"] for one in threadpool_info()][: len(before)] == before
