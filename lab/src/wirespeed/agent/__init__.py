"""The agent: sent over standard input to a host's Python (3.9+), it does the lab's work there."""
