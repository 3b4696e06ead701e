"""Clearing what nobody answered: deadlines, horizons, unmatched receipts, ambiguity."""
