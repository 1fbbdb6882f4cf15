"""Compiled loops for a GPU: a thread an episode, around the bodies that the CPU's loops call.

Import them through `latentmdp.engines.cuda`, which says what is missing where they cannot run.
"""
