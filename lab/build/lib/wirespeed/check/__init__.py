"""Checks a table of figures against laws that hold for any of them, whoever measured them."""
