"""Model files in JSON: versioned and validated on reading. Never pickle.

A model file is one object::

    {"format": "opboost-model", "version": 1,
     "loss": {"name": "binary:logistic", "n_classes": 0},
     "base_scores": [-1.6],
     "features": [{"name": "age"}, {"name": "c3", "owner": "retailer", "rank": 17, "missing_left": false}],
     "trees": [{"columns": [0, -1, -1], "thresholds": [...], "missing_left": [...], "lefts": [...],
                "rights": [...], "values": [...], "gains": [...], "covers": [...],
                "left_categories": [[0, [2, 5]]]}],
     "digest": "9f86d0..."}

Where ``"offsets"`` are, they name the features that are added to the scores, one per output. The digest is the SHA-256
of the object without it, as `save_model` writes it; it is checked where there is one, as in all files but those of
earlier versions.
A loss has its settings beside its name, such as ``"quantile_alpha": [0.1, 0.9]``. A tree that splits on categories
lists these nodes, each with the categories that go left; no other tree has that entry. Numbers are written so that they
read back to the bit. `covers` are sums of Hessians, a statistic of the labels; leave them out (``statistics=False``) of
any file that another party may see, and they read back as zeros.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opboost.arrays import Values
from opboost.errors import ModelFileError, OpBoostError
from opboost.trees.losses import loss_by_name
from opboost.trees.tree import Ensemble, Feature, Tree

MODEL_FORMAT = "opboost-model"
FORMAT_VERSION = 1

_KEYS = {"format", "version", "loss", "base_scores", "features", "trees", "offsets", "digest"}

_DTYPES: dict[str, type[np.generic]] = {
    "columns": np.int32,
    "thresholds": np.float64,
    "missing_left": np.bool_,
    "lefts": np.int32,
    "rights": np.int32,
    "values": np.float64,
    "gains": np.float64,
    "covers": np.float64,
}


def save_model(ensemble: Ensemble, path: Path | str, *, statistics: bool = True) -> None:
    """Write an ensemble to a JSON file.

    Parameters
    ----------
    ensemble : Ensemble
    path : path
    statistics : bool
        Whether to keep the trees' covers, which are statistics of the labels.
    """
    loss = ensemble.loss
    document = {
        "format": MODEL_FORMAT,
        "version": FORMAT_VERSION,
        "loss": {"name": loss.name, "n_classes": getattr(loss, "n_classes", 0), **loss.settings},
        "base_scores": ensemble.base_scores.tolist(),
        "features": [_feature_to_dict(feature) for feature in ensemble.features],
        **({"offsets": list(ensemble.offsets)} if ensemble.offsets else {}),
        "trees": [_tree_to_dict(tree, statistics=statistics) for tree in ensemble.trees],
    }
    document["digest"] = document_digest(document)
    Path(path).write_text(json.dumps(document, allow_nan=False, separators=(",", ":")))


def load_model(path: Path | str) -> Ensemble:
    """Read an ensemble from a JSON file.

    Raises
    ------
    ModelFileError
        If the file cannot be read, is not JSON, of another format or version, has another digest than it says, or
        describes trees that could not be walked.
    """
    try:
        if Path(path).is_fifo():
            raise OSError(errno.EINVAL, "it is a named pipe")
        document = json.loads(Path(path).read_text())
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path} is not a JSON file") from None
    if not isinstance(document, dict) or document.get("format") != MODEL_FORMAT:
        raise ModelFileError(f"{path} is not an {MODEL_FORMAT} file")
    if type(document.get("version")) is not int or document["version"] != FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has version {document.get('version')!r}; this package reads version {FORMAT_VERSION}"
        )
    if unknown := sorted(document.keys() - _KEYS):
        raise ModelFileError(f"{path} is malformed: it has {len(unknown)} entries that no {MODEL_FORMAT} file has")
    if document.pop("digest", None) not in (None, document_digest(document)):
        raise ModelFileError(f"{path} is not as it was written: its digest is another one. Bring a copy of it back")
    try:
        return _ensemble_from_dict(document)
    except OpBoostError as error:
        raise ModelFileError(f"{path} is malformed: {error}") from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelFileError(f"{path} is malformed: {type(error).__name__} in its structure") from None


def document_digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON object, as hexadecimal digits; spaces between its parts do not count."""
    return hashlib.sha256(json.dumps(document, separators=(",", ":")).encode()).hexdigest()


def _ensemble_from_dict(document: Mapping[str, Any]) -> Ensemble:
    loss, base_scores, features, trees = (document[key] for key in ("loss", "base_scores", "features", "trees"))
    if not (isinstance(loss, dict) and isinstance(features, list) and isinstance(trees, list)):
        raise ModelFileError("loss must be an object, features and trees must be lists")
    return Ensemble(
        tuple(_tree_from_dict(tree) for tree in trees),
        _floats(base_scores),
        loss_by_name(**loss),
        tuple(Feature(**feature) for feature in features),
        tuple(document.get("offsets", ())),
    )


def _floats(numbers: object) -> Values:
    if not isinstance(numbers, list) or not all(type(number) in (int, float) for number in numbers):
        raise ModelFileError("base_scores must be a list of numbers")
    return np.array(numbers, dtype=np.float64)


def _tree_to_dict(tree: Tree, *, statistics: bool) -> dict[str, list[object]]:
    names = [name for name in _DTYPES if statistics or name != "covers"]
    document = {name: getattr(tree, name).tolist() for name in names}
    if tree.left_categories:
        document["left_categories"] = [[node, list(left)] for node, left in sorted(tree.left_categories.items())]
    return document


def _tree_from_dict(document: Mapping[str, Any]) -> Tree:
    n_nodes = len(document["columns"])
    arrays = {}
    for name, dtype in _DTYPES.items():
        raw = np.array(document.get(name, [0.0] * n_nodes) if name == "covers" else document[name])
        is_sound = raw.shape == (n_nodes,) and np.can_cast(raw.dtype, dtype, casting="same_kind")
        if not is_sound or (np.issubdtype(dtype, np.integer) and (raw.astype(dtype) != raw).any()):
            raise ModelFileError(f"a tree's {name} must be a list of {n_nodes} entries of type {np.dtype(dtype)}")
        arrays[name] = raw.astype(dtype)
    return Tree(**arrays, left_categories=_categories(document.get("left_categories", [])))


def _categories(entries: Any) -> dict[int, tuple[int, ...]]:
    """Left categories by node; everything but integers is refused."""
    numbers = [number for node, left in entries for number in (node, *left)]
    if not isinstance(entries, list) or not all(type(number) is int for number in numbers):
        raise ModelFileError("a tree's left_categories must be a list of pairs of a node and a list of integers")
    categories = {node: tuple(left) for node, left in entries}
    if len(categories) < len(entries):
        raise ModelFileError("a tree's left_categories list a node twice")
    return categories


def _feature_to_dict(feature: Feature) -> dict[str, object]:
    if feature.owner is None:
        return {"name": feature.name}
    if feature.n_cells is not None:
        return {"name": feature.name, "owner": feature.owner, "n_cells": feature.n_cells}
    return {"name": feature.name, "owner": feature.owner, "rank": feature.rank, "missing_left": feature.missing_left}
