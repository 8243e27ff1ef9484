"""S-GBDT (Kirschte et al., 2023)."""
