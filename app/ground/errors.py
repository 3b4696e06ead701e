"""The one ancestor of every error that Daybook raises on purpose."""


class DaybookError(Exception):
    """Something happened that the caller cannot go on from; the class says what."""
