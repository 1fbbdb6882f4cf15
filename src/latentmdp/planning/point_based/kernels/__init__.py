"""Compiled loops of the point-based planners: arrays in, arrays out, no validation."""
