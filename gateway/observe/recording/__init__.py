"""Recordings of reviews and their answers: which are recorded, without which values, and in which files."""
