"""The operations of a Lance namespace, in groups: parse a request, call, return a response."""
