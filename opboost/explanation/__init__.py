"""What a model makes of its columns."""
