"""The commands beside ``serve``, and what they are made of."""
