"""One run, from checked settings to its record."""
