"""Measuring runs on a dataset, alone or side by side."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
