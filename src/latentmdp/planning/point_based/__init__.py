"""Bounds from belief points, shared by the point-based planners."""
