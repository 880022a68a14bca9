"""Tasks, one a file. They make NumPy arrays from seeded streams and never import torch."""
