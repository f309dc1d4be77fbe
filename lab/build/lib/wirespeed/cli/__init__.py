"""The command `wirespeed`: subcommands only; what they do lives in the rooms below."""

from wirespeed.cli.app import main

__all__ = ["main"]
