"""A chain of owners (InPrivate): turns, what an owner keeps of them, and the other owners as it meets them."""
