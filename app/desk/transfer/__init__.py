"""Transfer: bring people, consents and preferences in from files, line by line, and give them out again."""
