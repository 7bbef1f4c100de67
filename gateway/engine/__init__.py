"""What turns a configuration into decisions: pools of workers, paths, a snapshot, and the review itself."""
