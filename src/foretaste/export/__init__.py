"""Runs as programs that need no foretaste: ONNX, or a PyTorch program; histories in, lists out."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
