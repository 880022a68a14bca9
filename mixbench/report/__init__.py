"""Comparisons for reading: terminal, page, Markdown, JSON and plots. Never imports torch."""
