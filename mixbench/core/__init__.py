"""What knows nothing of experiments: errors, files, random streams, signals."""
