"""InPrivate Digging (Zhao et al., INFOCOM 2018)."""
