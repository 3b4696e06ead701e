"""Bugs planted on purpose, one at a time, in a copy of the tree: the tests that claim to guard against them must fail."""
