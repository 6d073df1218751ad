"""What requests cost: a record per exchange, prices, reports, budgets."""
