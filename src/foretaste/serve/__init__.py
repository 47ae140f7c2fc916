"""The HTTP service: recommendations, similar items and items by title, from runs in memory."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
