"""
Shapley values of both sides' columns
=====================================

What each column contributes to each score, and how training went.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from opboost import OpBoostRegressor

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# %%
# A callback is called after every round with the scores of the validation rows, and may end the training; ``verbose``
# prints them.

rounds = []
model = OpBoostRegressor(
    bounds={"bmi": (-0.2, 0.2), "s5": (-0.2, 0.2)},
    whole_range=32,
    n_estimators=200,
    learning_rate=0.05,
    eval_metric=["mae", "rmse"],
    early_stopping_rounds=15,
    callbacks=[rounds.append],
    random_state=0,
)
model.fit(X_train, y_train, eval_set=[(X_test, y_test)], verbose=20)

figure, axes = plt.subplots(figsize=(6, 3.5))
for metric in ("mae", "rmse"):
    axes.plot([one.finished for one in rounds], [one.scores[metric] for one in rounds], label=metric)
axes.axvline(model.best_iteration_ + 1, color="grey", linestyle="--", label="best round")
axes.set(xlabel="round", ylabel="error on validation rows")
axes.legend()
plt.tight_layout()

# %%
# Contributions of a row add up to its score. Those of a passive column count all of its tests together.

found = model.contributions(X_test)[:, :-1]
order = abs(found).mean(axis=0).argsort()
figure, axes = plt.subplots(figsize=(6, 4))
for place, column in enumerate(order):
    axes.scatter(found[:, column], [place] * len(found), c=X_test.iloc[:, column], cmap="coolwarm", s=8)
axes.set_yticks(range(len(order)), X.columns[order])
axes.set(xlabel="contribution to the score (colour: value of the column)")
plt.tight_layout()
plt.show()
