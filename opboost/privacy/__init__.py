"""Everything that draws noise, and the accounts of it. Knows nothing of trees."""
