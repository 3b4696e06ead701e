"""The rules: each sees the document, the facts and now, and says allow, defer or suppress with evidence."""
