"""Evaluations of runs for people: side by side, as tables, and as reports with plots."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
