"""The one tree core. Exact; knows nothing of privacy."""
