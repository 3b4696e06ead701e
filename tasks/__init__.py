"""The queue edge: unpack ids, call one run, enqueue what it returns."""
