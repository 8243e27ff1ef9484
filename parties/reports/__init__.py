"""Reports that people look at: what a run would cost before it starts, and what it did."""
