"""Benchmarks of ``foretaste bench``: training, scores and answers on generated data."""
