"""Runs queries and expressions in processes of their own, which can be ended at any time.

Lance evaluates expressions in native code without limits of memory and time, and a fault in it ends
its process. So a query runs outside of the server: a process that crashes, needs too much memory or
takes too long ends that one request.
"""
