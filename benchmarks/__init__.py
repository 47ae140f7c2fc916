"""Measurements and attacks of the project itself, run from a clone."""

from foretaste._util.terminal import share_cores

# Here, for it must come before PyTorch is imported, which every module does.
share_cores()
