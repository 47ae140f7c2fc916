"""What was measured, for people: evaluations of runs, side by side, as tables."""
