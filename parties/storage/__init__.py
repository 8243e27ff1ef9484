"""Storage: atomic files, private SQLite databases, spooled columns, plain-value serialization."""
