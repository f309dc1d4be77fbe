"""Tables, charts and the page, from a run directory alone."""
