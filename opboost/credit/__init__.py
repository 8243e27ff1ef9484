"""Credit risk: evidence, scorecards, discrimination, drift, calibration, fairness. Label 1 is the bad event."""
