"""The command `wirespeed`: options and output of its commands; other components do the work."""

from wirespeed.cli.app import main

__all__ = ["main"]
