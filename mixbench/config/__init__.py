"""From what the user typed to checked settings."""
