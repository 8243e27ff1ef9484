"""Record alignment: private set intersection, keyed hashes, and blinded identifiers."""
