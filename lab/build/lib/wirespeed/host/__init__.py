"""The host agent: everything the lab does to a machine goes through it."""
