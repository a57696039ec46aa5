"""Comparisons on recorded and live runs: replay of curves against every baseline, pruner comparisons, latency."""
