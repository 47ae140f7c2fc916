"""Raw interactions, prepared datasets, and the arrays that training and evaluation read."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
