"""Helpers without mathematics: every module is a part by itself, and lists nothing."""
