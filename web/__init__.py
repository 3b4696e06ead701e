"""The HTTP edge: translate a request, call one verb, answer."""
