"""From HTTP to the carrier and back, with web, workers and beat as processes."""
