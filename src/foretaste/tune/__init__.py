"""Many trainings in one directory: searches of settings and competitions."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
