"""Runs: they open transactions, and keep none open while the network is."""
