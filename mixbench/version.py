"""The version; the package's metadata takes it from here."""

__version__ = "0.1.0"
