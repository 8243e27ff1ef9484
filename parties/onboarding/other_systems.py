"""Parameters of other systems (XGBoost, FATE, SecretFlow) as the `model` section of a run file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opboost.trees.losses import OTHER_NAMES
from parties.config.model_section import ModelSection
from parties.config.reading import read_section
from parties.errors import ConfigError
from parties.storage.documents import read_yaml

# What the section itself does not take; XGBoost's other names it does.
_NAMES = {
    "num_trees": "n_estimators",
    "l1": "reg_alpha",
    "l2": "reg_lambda",
    "min_impurity_split": "gamma",
    "max_leaf": "max_leaves",
    "rowsample_by_tree": "subsample",
    "colsample_by_tree": "colsample_bytree",
}

# Nothing here is encrypted, packed or sampled by gradients; trees grow from histograms, and logs follow the command.
_WITHOUT = (
    *("tree_method", "grow_policy", "verbose", "verbosity", "silent", "enable_categorical", "validate_parameters"),
    *("goss", "goss_start_iter", "top_rate", "other_rate", "min_sample_split", "min_leaf_node", "complete_secure"),
    *("gh_pack", "split_info_pack", "hist_sub", "he_param", "encrypt_param", "cv_param"),
    *("enable_goss", "bottom_rate", "enable_quantization", "quantization_scale", "fixed_point_parameter"),
    *("tree_growing_method", "first_tree_with_label_holder_feature", "batch_encoding_enabled"),
)


@dataclass(frozen=True, slots=True)
class OtherParameters:
    """A `model` section, and the parameters that have no counterpart in it."""

    model: Mapping[str, Any]
    dropped: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> OtherParameters:
        """Read a JSON or YAML file of parameters by name.

        Raises
        ------
        ConfigError
            If it is no such file, or a name or a value is unknown.
        """
        given = read_yaml(path)
        kept: dict[str, Any] = {}
        for name in (name for name in given if name not in _WITHOUT):
            if (meant := _NAMES.get(name, name)) in kept:
                both = ", ".join(name for name in given if _NAMES.get(name, name) == meant)
                raise ConfigError(f"{path}: {both} are names of `{meant}`: give one of them. Nothing was made")
            kept[meant] = given[name]
        if "objective" in kept:
            kept["objective"] = OTHER_NAMES.get(str(kept["objective"]), kept["objective"])
        if not str(kept.get("objective", "")).startswith(("multi:", "ordinal:")):
            kept.pop("num_class", None)
        if isinstance(eps := kept.get("sketch_eps"), float) and 0 < eps < 1:
            kept["max_bin"] = round(1 / kept.pop("sketch_eps"))
        if isinstance(kept.get("eval_metric"), str):
            kept["eval_metric"] = [kept["eval_metric"]]
        found = read_section(ModelSection, kept).model_dump(mode="json", exclude_unset=True)
        return cls(found, tuple(name for name in given if name in _WITHOUT))
