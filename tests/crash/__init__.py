"""Kill a process at every commit and around every byte; the books balance afterwards."""
