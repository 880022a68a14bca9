"""Comparisons for reading: terminal, Markdown, JSON and plots. Never imports torch."""
