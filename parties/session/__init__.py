"""Sessions: handshake, connections and termination messages between two parties."""
