"""A carrier to test against: a real HTTP server that speaks Twilio's dialect and misbehaves on request."""
