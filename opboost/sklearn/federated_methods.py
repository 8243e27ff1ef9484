"""The named methods of the federated framework, as points in its space (Maddock et al., table 2 and section 5.3.3)."""

from __future__ import annotations

from typing import Any, Self


class NamedMethods:
    """A constructor per named method. Settings that are given replace the method's own."""

    @classmethod
    def feverless(cls, **settings: Any) -> Self:
        """FEVERLESS with even candidates: histograms and Newton updates."""
        return cls._named({"split_method": "hist", "n_estimators": 25}, settings)

    @classmethod
    def dp_gbm(cls, **settings: Any) -> Self:
        """DP-GBM: histograms and gradient updates."""
        return cls._named({"split_method": "hist", "weight_update": "gradient", "n_estimators": 25}, settings)

    @classmethod
    def dp_rf(cls, **settings: Any) -> Self:
        """DP-RF: a forest of random trees, whose leaves are averages."""
        return cls._named({"weight_update": "averaging"}, settings)

    @classmethod
    def dp_ebm(cls, **settings: Any) -> Self:
        """DP-EBM in full: gradient updates, one column per tree in turn, `n_estimators` trees for each column."""
        return cls._named({"weight_update": "gradient", "interaction": "cyclical", "trees_per_column": True}, settings)

    @classmethod
    def dp_ebm_newton(cls, **settings: Any) -> Self:
        """DP-EBM with Newton updates, and `n_estimators` trees in all."""
        return cls._named({"interaction": "cyclical"}, settings)

    @classmethod
    def dp_tr_newton(cls, **settings: Any) -> Self:
        """Random trees with Newton updates."""
        return cls._named({}, settings)

    @classmethod
    def dp_tr_newton_ih(cls, **settings: Any) -> Self:
        """Random trees with Newton updates, on candidates by Iterative Hessian."""
        return cls._named({"split_candidates": "ih"}, settings)

    @classmethod
    def dp_tr_newton_ih_ebm(cls, **settings: Any) -> Self:
        """The same with one column per tree, in turn."""
        return cls._named({"split_candidates": "ih", "interaction": "cyclical"}, settings)

    @classmethod
    def dp_tr_batch_newton_ih_ebm(cls, *, share: float = 0.25, **settings: Any) -> Self:
        """The same with batches of a share of the trees."""
        return cls._named({"split_candidates": "ih", "interaction": "cyclical", "batch_size": float(share)}, settings)

    @classmethod
    def ldp(cls, **settings: Any) -> Self:
        """Records that release their own gradients under noise. The features are in the clear."""
        return cls._named({"local_noise": True}, settings)

    @classmethod
    def _named(cls, method: dict[str, Any], settings: dict[str, Any]) -> Self:
        return cls(**{**method, **settings})
