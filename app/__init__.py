"""What Daybook does."""
