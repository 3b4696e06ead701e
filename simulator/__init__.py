"""A carrier to test against: a real HTTP server that speaks Twilio's dialect and misbehaves on request."""

# The development pair: what the simulator expects and what a development route is seeded with. They open nothing.
DEVELOPMENT_ACCOUNT_SID = "ACdaeb00c0000000000000000000000001"
DEVELOPMENT_AUTH_TOKEN = "daybook0development0auth0token00"  # noqa: S105  opens the simulator only
