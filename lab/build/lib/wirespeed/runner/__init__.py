"""Plans trials, runs them, judges them, resumes them."""
