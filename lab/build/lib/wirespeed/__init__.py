"""Wirespeed's lab: turns a recipe into trials, trials into results, and results into a report."""

__version__ = "0.1.0"
