"""One file for each program that the lab knows how to start and read."""
