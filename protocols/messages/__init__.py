"""Messages of every protocol, and their registry."""
