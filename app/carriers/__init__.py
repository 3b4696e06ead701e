"""The carriers: what each can do, how to speak to it, what its words mean."""
