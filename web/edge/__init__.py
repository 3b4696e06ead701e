"""What strangers call: receipts, health, metrics."""
