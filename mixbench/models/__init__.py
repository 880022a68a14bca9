"""Models around a mixer, and what can be measured on them."""
