"""Exits with 0 if the gateway of this container answers: the health check of its image."""

from __future__ import annotations

import os
import ssl
import sys
import urllib.error
import urllib.request

URL = "http://127.0.0.1:2333/livez"
_SECONDS = 4


def is_alive(url: str) -> bool:
    """Return whether a gateway answers, whatever it says of the request."""
    # The certificate names the gateway as clients know it, and not this address.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # HTTP_PROXY is for the gateway's own requests: a proxy cannot reach this container's loopback.
    no_proxy = urllib.request.ProxyHandler({})
    opener = urllib.request.build_opener(no_proxy, urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(url, timeout=_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        with error:
            return error.code < 500
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(not is_alive(os.environ.get("LANCE_BRIDGE_HEALTH_URL", URL)))
