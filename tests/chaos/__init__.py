"""Take the broker, Redis or the database away from a running house; every event still becomes one text."""
