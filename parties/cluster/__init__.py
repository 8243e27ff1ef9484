"""A party's own Dask cluster: partitions, release, training and prediction on it."""
