"""Relaxes the registration of a gateway that is away, and restores it."""
