"""Checks a table of results against laws that hold for any measurement."""
