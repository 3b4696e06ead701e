"""The books: verbs that compose inside one transaction and never commit."""
