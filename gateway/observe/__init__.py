"""What is recorded of reviews: metrics, traces, records of decisions, and recordings of reviews."""
