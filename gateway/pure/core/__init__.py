"""The decisions: pure functions and state machines without sockets, clocks, tasks and logs."""
