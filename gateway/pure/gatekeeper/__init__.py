"""How the constraints of Gatekeeper behave at a review: what matches them, and their answers."""
