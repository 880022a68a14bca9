"""What a run leaves on disk. Never imports torch."""
