"""Figures: what Daybook costs beside the bare database and the bare queue, as ratios of one run."""
