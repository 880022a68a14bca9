"""From records to comparisons. Never imports torch."""
