"""A checked tree → a program: closures that evaluate an expression on plain JSON without converting it."""
