"""Requests, matching, evaluation, verdicts, patches, decision and response: pure functions and state
machines without sockets, clocks, tasks and logs.
"""
