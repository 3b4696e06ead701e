"""Embedded Postgres and Valkey, and the supervisor behind `make up`."""
