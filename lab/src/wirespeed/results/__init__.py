"""The run directory: what it holds, how it is read and written."""
