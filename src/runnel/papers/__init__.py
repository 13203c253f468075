"""Algorithms and contenders of the papers that Runnel builds on and that its main path does not need.

They obey the same contracts and give the same answers; benchmarks and tests compare them, and settings select them.
"""
