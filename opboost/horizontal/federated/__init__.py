"""The federated DP-GBDT framework (Maddock et al., CCS 2022)."""
