"""Plan of a passive party's release: facts, page and what-ifs."""
