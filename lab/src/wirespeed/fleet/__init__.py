"""Channels to the agents of all hosts, and all hosts as one fleet."""
