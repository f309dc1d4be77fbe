"""Figures of the vendors' cookbooks: next to those of a run, and recomputed."""
