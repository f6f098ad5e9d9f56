"""The proxy for a URL, from the environment. Loopback addresses never go through one."""

from __future__ import annotations

import base64
import ipaddress
import urllib.request
from dataclasses import dataclass, field
from typing import Optional
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy."""

    host: str
    port: int
    authorization: Optional[str] = field(default=None, repr=False)
    """Value of `Proxy-Authorization`."""
    url: str = field(default="", repr=False)


def is_loopback(host: str) -> bool:
    """Returns true if a host is this machine."""
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def environment_proxy(url: str) -> Optional[Proxy]:
    """Returns the proxy that the environment names for a URL, with respect to `NO_PROXY`."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host):
        return None
    proxies = urllib.request.getproxies()
    address = proxies.get(parts.scheme) or proxies.get("all")
    if not address or urllib.request.proxy_bypass(host):
        return None
    return _parse(address)


def _parse(address: str) -> Optional[Proxy]:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("the environment names a proxy that is not http://HOST:PORT")
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode("utf-8")).decode("ascii")
    return Proxy(parts.hostname, parts.port or 80, authorization, parts.geturl())
