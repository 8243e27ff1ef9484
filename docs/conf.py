"""Sphinx configuration. The pages under ``_generated`` are written from the code before each build."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from generate_reference import write_pages  # noqa: E402

write_pages(HERE / "_generated")

project = "opboost"
version = release = version_of("opboost")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "sphinx_gallery.gen_gallery"]
exclude_patterns = ["_build", "_generated", "gallery"]
# An example is executed, and its pictures are drawn, when it has changed.
sphinx_gallery_conf = {"examples_dirs": "gallery", "gallery_dirs": "examples", "write_computation_times": False}
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "opboost"
html_show_copyright = False
autodoc_typehints = "none"
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseEstimator,ClassifierMixin,RegressorMixin",
    # Metadata routing, which scikit-learn adds to every estimator.
    "exclude-members": "get_metadata_routing,set_fit_request,set_partial_fit_request,set_predict_proba_request,"
    "set_predict_request,set_score_request",
}
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
