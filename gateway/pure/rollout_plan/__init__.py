"""``rollout.plan``: stages through which a webhook comes into force, and who decides when."""
