"""Numerics as plain functions: `naive_x` is the definition, the form beside it is the fast one."""
