"""The gateway beside its alternatives, with the same policies (``loadtest.policies``).

``python -m loadtest.peers`` checks all answers, measures, prints tables and judges targets. Modules:
``programs`` builds the peers, ``setups`` configures and starts them, ``labels`` has the policies of rollouts,
``targets`` the limits.
"""
