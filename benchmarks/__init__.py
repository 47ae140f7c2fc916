"""Measurements and attacks of the project itself, run from a clone."""

# Imported here because it sets how threads wait, before any module imports PyTorch.
import foretaste  # noqa: F401
