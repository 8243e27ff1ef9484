"""Split candidates and split rules that are private or independent of the data."""
