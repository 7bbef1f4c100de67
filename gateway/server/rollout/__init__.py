"""The live side of ``rollout.plan``: one decision for all replicas, by evidence that each of them writes.

No module here decides: ``gateway.pure.rollout_plan.decide`` does, from what the store shows.
"""
