"""What everything stands on: the database, configuration, ids, keys."""
