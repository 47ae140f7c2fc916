"""Measurements and attacks of the project itself, run from a clone."""

# Here, for it sets how threads wait, and must come before PyTorch, which every module imports.
import foretaste  # noqa: F401
