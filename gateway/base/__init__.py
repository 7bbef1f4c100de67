"""What every room uses: errors, logs, text, progress of long work, and a queue of work in steps."""
