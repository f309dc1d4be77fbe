"""Resource samples, garbage collections and machine facts, as plain numbers."""
