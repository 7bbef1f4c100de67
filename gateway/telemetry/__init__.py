"""What the gateway says about itself: metrics and logs. Known by the edges, never by the core."""
