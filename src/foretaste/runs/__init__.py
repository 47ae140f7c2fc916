"""The run directory: config, weights, ids, histories and the metrics log of one training."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
