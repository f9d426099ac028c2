"""Whether the Hugging Face hub can be reached: its client would try again for half a minute if it cannot."""

from socket import getaddrinfo
from urllib.parse import urlsplit
from urllib.request import getproxies


def hub_has_address() -> bool:
    """Whether the host of the Hugging Face hub can be looked up; behind a proxy, that is left to the proxy."""
    from huggingface_hub import constants

    host = urlsplit(constants.ENDPOINT).hostname
    if getproxies() or host is None:
        return True
    try:
        return bool(getaddrinfo(host, None))
    except OSError:
        return False
