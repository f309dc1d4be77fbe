"""Recipes and sites: read strictly, then expanded into cells."""
