"""The rules of the worker contract, one module for each group."""
