"""The recommended recipe: random trees on joint noisy sums, with all sizes set from the budget and a noisy count."""
