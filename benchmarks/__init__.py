"""Measurements and attacks of the project itself, run from a clone."""
