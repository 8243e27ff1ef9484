"""Vertical federated gradient boosting on order-preserving desensitized ranks."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opboost.export.onnx_model import to_onnx
    from opboost.export.sql import to_sql
    from opboost.export.treelite_model import to_treelite
    from opboost.export.xgboost_model import from_xgboost, to_xgboost
    from opboost.privacy.adj_map import AdjMap
    from opboost.privacy.domain import IntegerDomain, Partition
    from opboost.privacy.guarantee import Guarantee
    from opboost.privacy.order_preserving import GlobalMap, LocalMap
    from opboost.schema import ColumnSchema
    from opboost.sklearn.dp_boosting import DPBoostingClassifier, DPBoostingRegressor
    from opboost.sklearn.dpboost import DPBoostClassifier, DPBoostRegressor
    from opboost.sklearn.federated import FederatedGBDTClassifier, FederatedGBDTRegressor
    from opboost.sklearn.inprivate import InPrivateClassifier, InPrivateRegressor
    from opboost.sklearn.sgbdt import SGBDTClassifier, SGBDTRegressor
    from opboost.sklearn.vertical import OpBoostClassifier, OpBoostRegressor
    from opboost.trees.model_file import load_model, save_model
    from opboost.trees.tree import Ensemble

    __version__: str

__all__ = [
    "AdjMap",
    "ColumnSchema",
    "DPBoostClassifier",
    "DPBoostRegressor",
    "DPBoostingClassifier",
    "DPBoostingRegressor",
    "Ensemble",
    "FederatedGBDTClassifier",
    "FederatedGBDTRegressor",
    "GlobalMap",
    "Guarantee",
    "InPrivateClassifier",
    "InPrivateRegressor",
    "IntegerDomain",
    "LocalMap",
    "OpBoostClassifier",
    "OpBoostRegressor",
    "Partition",
    "SGBDTClassifier",
    "SGBDTRegressor",
    "from_xgboost",
    "load_model",
    "save_model",
    "to_onnx",
    "to_sql",
    "to_treelite",
    "to_xgboost",
]

_HOMES = {
    "AdjMap": "opboost.privacy.adj_map",
    "ColumnSchema": "opboost.schema",
    "DPBoostClassifier": "opboost.sklearn.dpboost",
    "DPBoostRegressor": "opboost.sklearn.dpboost",
    "DPBoostingClassifier": "opboost.sklearn.dp_boosting",
    "DPBoostingRegressor": "opboost.sklearn.dp_boosting",
    "Ensemble": "opboost.trees.tree",
    "FederatedGBDTClassifier": "opboost.sklearn.federated",
    "FederatedGBDTRegressor": "opboost.sklearn.federated",
    "GlobalMap": "opboost.privacy.order_preserving",
    "Guarantee": "opboost.privacy.guarantee",
    "InPrivateClassifier": "opboost.sklearn.inprivate",
    "InPrivateRegressor": "opboost.sklearn.inprivate",
    "IntegerDomain": "opboost.privacy.domain",
    "LocalMap": "opboost.privacy.order_preserving",
    "OpBoostClassifier": "opboost.sklearn.vertical",
    "OpBoostRegressor": "opboost.sklearn.vertical",
    "Partition": "opboost.privacy.domain",
    "SGBDTClassifier": "opboost.sklearn.sgbdt",
    "SGBDTRegressor": "opboost.sklearn.sgbdt",
    "from_xgboost": "opboost.export.xgboost_model",
    "load_model": "opboost.trees.model_file",
    "save_model": "opboost.trees.model_file",
    "to_onnx": "opboost.export.onnx_model",
    "to_sql": "opboost.export.sql",
    "to_treelite": "opboost.export.treelite_model",
    "to_xgboost": "opboost.export.xgboost_model",
}


def __dir__() -> list[str]:
    """The public names, including those that are not loaded yet."""
    return sorted({*globals(), *__all__, "__version__"})


def __getattr__(name: str) -> object:
    """Lazy import of public names, so that the command line does not load everything."""
    if name == "__version__":
        import importlib.metadata

        return importlib.metadata.version("opboost")
    if name not in _HOMES:
        raise AttributeError(f"module 'opboost' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
