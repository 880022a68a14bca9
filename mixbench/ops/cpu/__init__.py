"""Compiled kernels for CPUs; nobody needs them to add a mixer, see README.md."""
