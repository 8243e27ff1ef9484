"""
Pipelines, grid search, calibration, importance
===============================================

The estimators keep scikit-learn's contract, so its tools work on them. A clinic holds the diagnoses and half of the
measurements; a laboratory is the passive party and holds the rest.
"""

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline

from opboost import OpBoostClassifier

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X = X[["mean radius", "mean texture", "mean smoothness", "worst radius", "worst texture", "worst concavity"]]
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# Public knowledge of the laboratory's columns; whoever is named here is passive.
bounds = {"worst radius": (5, 40), "worst texture": (10, 60), "worst concavity": (0, 1.5)}

# %%
# Pipelines
# ---------
#
# Bounds go by name, and names survive a pipeline whose output is a data frame. A transformer puts a mark before them
# (``numbers__worst radius``), which is passed over. Bounds are those of a column as it arrives, so scale and impute a
# passive column by public numbers only: the mean of the data would be released beside the guarantee.

columns = ColumnTransformer([("numbers", SimpleImputer(strategy="constant", fill_value=0), X.columns)])
last = OpBoostClassifier(bounds=bounds, n_estimators=40, random_state=0)
model = make_pipeline(columns, last).set_output(transform="pandas").fit(X_train, y_train)
print(f"AUC {roc_auc_score(y_test, model.predict_proba(X_test)[:, 1]):.3f}")
model[-1].guarantee_

# %%
# Cross-validation and grid search
# --------------------------------
#
# Each fit of a simulation releases the passive columns anew, so a search over budgets shows what each would be worth.
# In a run between parties, tune on one release (``opboost tune``).

small = OpBoostClassifier(bounds=bounds, n_estimators=20, random_state=0)
print(cross_val_score(small, X_train, y_train, cv=3, scoring="roc_auc").round(3))

search = GridSearchCV(small, {"whole_range": [2, 8, 32], "max_depth": [2, 4]}, cv=3, scoring="roc_auc")
search.fit(X_train, y_train)
table = pd.DataFrame(search.cv_results_).pivot_table("mean_test_score", "param_whole_range", "param_max_depth")
axes = table.plot(marker="o", logx=True, xlabel="whole_range", ylabel="AUC", figsize=(6, 3.5))
axes.set_title("Cross-validated AUC by budget")
axes.legend(title="max_depth")
axes.set_xticks(table.index, table.index)
axes.minorticks_off()
plt.tight_layout()

# %%
# Calibration
# -----------

calibrated = CalibratedClassifierCV(small, method="sigmoid", cv=3).fit(X_train, y_train)
figure, axes = plt.subplots(figsize=(5, 4))
for name, one in {"as trained": small.fit(X_train, y_train), "calibrated": calibrated}.items():
    CalibrationDisplay.from_estimator(one, X_test, y_test, n_bins=5, strategy="quantile", ax=axes, name=name)
plt.tight_layout()

# %%
# Permutation importance
# ----------------------
#
# Beside the shares in the gain of the splits (``feature_importances_``).

found = permutation_importance(small, X_test, y_test, scoring="roc_auc", n_repeats=5, random_state=0)
shares = pd.DataFrame({"permutation": found.importances_mean, "gain": small.feature_importances_}, index=X.columns)
shares.sort_values("gain").plot.barh(subplots=True, layout=(1, 2), sharey=True, legend=False, figsize=(8, 3))
plt.tight_layout()
plt.show()
