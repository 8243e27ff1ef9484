"""HTTP service of the active party: scores of one or two models, over connections that are kept."""
