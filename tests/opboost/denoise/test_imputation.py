"""The density of a label given the exact codes, as the mixture has it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import norm

from opboost.denoise.channel import NoiseChannel
from opboost.denoise.imputation import Evidence, Imputation
from opboost.denoise.mixture import LatentClasses
from opboost.denoise.sources import Source

LAWS = (np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]), np.array([[0.5, 0.4, 0.1], [0.2, 0.2, 0.6]]))
WEIGHTS, MEANS, DEVIATIONS = np.array([0.4, 0.6]), np.array([-0.5, 0.4]), np.array([0.6, 0.8])
LABELS = np.array([[0.9, 0.2], [0.1, 0.8]])
CHANNEL = np.full((3, 3), 1 / 3)


@pytest.mark.parametrize("n_classes", [2, 0])
def test_the_density_of_a_label_given_exact_codes_is_the_enumerated_one(n_classes: int) -> None:
    """Nine pairs of codes, in two versions; the channel tells nothing, so what was released must not count."""
    pairs = np.array(list(itertools.product(range(3), range(3))), np.uint8)
    labels, own = np.arange(9) % 2, np.linspace(-1, 1, 9, dtype=np.float32)
    evidence = Evidence.of(labels.astype(float), own[:, None].astype(float), n_classes=n_classes)
    released = np.zeros(9, np.uint8)
    channel = NoiseChannel(CHANNEL, np.arange(3), np.arange(1, 4), has_missing=False)
    sources = tuple(Source(s, (s,), channel, released, (), (np.arange(3, dtype=np.uint32),)) for s in range(2))
    means, deviations = np.array([[1.0, -1.0], MEANS]), np.array([[0.5, 0.7], DEVIATIONS])
    numbers = slice(1, None) if n_classes else slice(None)
    model = LatentClasses(
        (CHANNEL, CHANNEL), WEIGHTS, LAWS, (LABELS,) if n_classes else (), means[numbers], deviations[numbers]
    )
    versions = np.stack([pairs.T, pairs[::-1].T])
    found = Imputation(sources, model, evidence).label_densities(versions)
    for version, i in itertools.product(range(2), range(9)):
        first, second = versions[version, :, i]
        joint = WEIGHTS * LAWS[0][:, first] * LAWS[1][:, second]
        joint *= norm.pdf(evidence.numbers[i, 0], MEANS, DEVIATIONS)
        of_label = LABELS[labels[i]] if n_classes else norm.pdf(evidence.label_numbers[i, 0], means[0], deviations[0])
        assert found[version, i] == pytest.approx((joint * of_label).sum() / joint.sum(), rel=1e-4)
