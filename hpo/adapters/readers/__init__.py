"""Readers of logs: one module a format, listed in :mod:`hpo.adapters.readers.registry`."""
