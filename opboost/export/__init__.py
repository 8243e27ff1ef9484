"""Models in the forms of other systems: XGBoost, ONNX, treelite, SQL."""
