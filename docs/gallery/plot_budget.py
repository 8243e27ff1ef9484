"""
What a budget costs
===================

The passive party's columns are noised before they leave it. ``whole_range`` bounds the odds by which what is released
tells any two values of a column apart: the smaller, the more noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

from opboost import GlobalMap, IntegerDomain, OpBoostRegressor

X, y = make_friedman1(4000, n_features=6, noise=1, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
bounds = {1: (0, 1), 3: (0, 1)}  # the passive party's columns
own = [0, 2, 4, 5]

# %%
# The mechanism
# -------------
#
# What a value of 50, on a domain of 100 points, is released as. Order is kept in the sense that near values stay near.

domain = IntegerDomain(1, 100)
figure, axes = plt.subplots(figsize=(6, 3.5))
for whole_range in (2, 8, 32):
    released = np.exp(GlobalMap(epsilon=whole_range / 99, domain=domain).log_probabilities()[49])
    axes.plot(np.arange(1, 101), released, label=f"whole_range {whole_range}")
axes.set(xlabel="released value", ylabel="probability")
axes.legend()
plt.tight_layout()

# %%
# The score
# ---------
#
# From the score of the active party alone to that of both without noise, and with little noise sometimes beyond it.

settings = {"n_estimators": 100, "max_depth": 3, "learning_rate": 0.1, "random_state": 0}
alone = OpBoostRegressor(**settings).fit(X_train[:, own], y_train).score(X_test[:, own], y_test)
budgets = (2, 4, 8, 16, 32, 64)
scores = [
    OpBoostRegressor(whole_range=one, bounds=bounds, **settings).fit(X_train, y_train).score(X_test, y_test)
    for one in budgets
]
both = OpBoostRegressor(**settings).fit(X_train, y_train).score(X_test, y_test)

figure, axes = plt.subplots(figsize=(6, 3.5))
axes.semilogx(budgets, scores, marker="o", base=2, label="joint model")
axes.axhline(alone, color="grey", linestyle="--", label="active party alone")
axes.axhline(both, color="black", linestyle=":", label="without noise")
axes.set(xlabel="whole_range", ylabel="R2 on new records")
axes.legend()
plt.tight_layout()
plt.show()
