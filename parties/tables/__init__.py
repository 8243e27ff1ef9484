"""Tables: a party's data file, its columns, and the identifiers of its records."""
