"""treadle: an LLM serving runtime for agent loops. Importing it does not import torch."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
