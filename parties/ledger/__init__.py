"""Privacy ledger: hash-chained lines, budgets, stored releases, and the charge before every draw."""
