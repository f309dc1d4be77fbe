"""From the trials of a run to cells, comparisons, verdicts, checks and trends."""
