"""People: the vault, their addresses, and whether they want to hear from us."""
