"""What is decided: pure functions and state machines that know no socket, clock, task or log."""
