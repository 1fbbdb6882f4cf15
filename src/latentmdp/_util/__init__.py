"""Helpers that know nothing of latent MDPs: arrays, randomness, storage, clocks, checks."""
