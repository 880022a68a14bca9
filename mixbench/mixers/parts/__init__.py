"""What several mixers share."""
