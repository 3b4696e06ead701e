"""What is kept: tables, constraints, indexes, triggers; no behaviour."""
