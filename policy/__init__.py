"""What is right: pure functions of values and `now`."""
