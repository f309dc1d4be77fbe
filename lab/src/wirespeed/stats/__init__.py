"""Statistics: numbers in, numbers out; nothing here knows what a run is."""
