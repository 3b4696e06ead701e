"""The figures: one module per part of the flow."""
