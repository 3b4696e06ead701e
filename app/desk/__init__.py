"""What people do: cancel, pause, resume; each writes an operator_action."""
