"""Training: the public functions, the one loop, its settings and callbacks."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
