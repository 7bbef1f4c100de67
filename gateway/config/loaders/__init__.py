"""The documents of other policy engines, Kyverno and Gatekeeper, read as policies of the gateway."""
