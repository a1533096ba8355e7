"""The operations of a Lance namespace, in groups: parse a request, call, make the answer."""
