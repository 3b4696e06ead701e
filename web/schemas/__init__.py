"""The wire format and nothing else; the OpenAPI document is made from it."""
