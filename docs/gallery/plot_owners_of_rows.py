"""
Rows under differential privacy
===============================

Several owners hold the same columns of different people. The model itself keeps (epsilon, delta)-differential privacy
per record, so it may be shown to others.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from opboost import DPBoostingClassifier, FederatedGBDTClassifier

draw = np.random.default_rng(0)
n = 12_000
X = pd.DataFrame({"age": draw.integers(18, 91, n), "visits": draw.poisson(4, n), "income": draw.gamma(4, 8, n)})
risk = 0.05 * (X["age"] - 50) - 0.3 * (X["visits"] - 4) + 0.5 * (X["income"] < 20)
y = (risk + draw.logistic(0, 0.6, n) > 0).astype(int)
bounds = {"age": (18, 90), "visits": (0, 30), "income": (0, 200)}
is_new = np.arange(n) >= 9_000

# %%
# Score by budget
# ---------------

epsilons = (0.1, 0.3, 1.0, 3.0)
scores = []
for epsilon in epsilons:
    model = DPBoostingClassifier(epsilon=epsilon, delta=1e-6, bounds=bounds, random_state=0)
    model.fit(X[~is_new], y[~is_new])
    scores.append(roc_auc_score(y[is_new], model.predict_proba(X[is_new])[:, 1]))
figure, axes = plt.subplots(figsize=(6, 3.5))
axes.semilogx(epsilons, scores, marker="o")
axes.set(xlabel="epsilon per record", ylabel="AUC on new records")
plt.tight_layout()

# %%
# The guarantee of the last fit. A seed makes the noise repeatable, and the guarantee says so.

model.guarantee_

# %%
# A model that can be read
# ------------------------
#
# Trees of one column each add up to a step function per column.

explained = FederatedGBDTClassifier.dp_ebm_newton(epsilon=2.0, delta=1e-6, bounds=bounds, random_state=0)
shapes = explained.fit(X[~is_new], y[~is_new]).explain()
figure, all_axes = plt.subplots(1, 3, figsize=(8, 3), sharey=True)
for axes, (name, shape) in zip(all_axes, shapes.columns.items(), strict=True):
    lower, upper = bounds[name]
    axes.stairs(shape.values, [lower, *shape.edges, upper], baseline=None)
    axes.set(title=name, ylabel="log odds" if name == "age" else "")
plt.tight_layout()
plt.show()
