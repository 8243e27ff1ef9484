"""scikit-learn estimators over all schemes."""
