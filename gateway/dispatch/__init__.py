"""Who is asked: worker pools, their endpoints, and the calls in flight on them.

The only part that knows gRPC.
"""
