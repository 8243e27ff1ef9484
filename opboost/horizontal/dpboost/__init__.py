"""DPBoost (Li, Wu, Wen, He; AAAI 2020)."""
