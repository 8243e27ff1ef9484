"""Trees fitted to a table whose columns may be noised: which version of them is looked at, and each output's trees."""
