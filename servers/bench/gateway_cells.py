"""The requests of each cell of gateway.py, and the settings with which each gateway does the same work.

A cell changes three things: the origin (payload, latency, static), the load (protocol, streams,
connections), and the contenders' configurations. {cert}, {key} and {both} in them are the files of a
certificate made for the run, {folder} the contender's own folder.
"""

import subprocess
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """One question to all contenders."""

    connections: list = field(default_factory=lambda: [1000])
    only: list = field(default_factory=lambda: ["nginx", "netty", "haproxy"])
    # An origin that answers at once, from nginx's memory; else the stub with latency and payload.
    static: bool = False
    payload: str = "1KiB"
    latency: str = "50ms"
    scheme: str = "http"
    load: tuple = ()
    # Messages that go to and fro over connections that stand.
    websocket: bool = False
    nginx_listen: str = ""
    nginx_http: str = ""
    nginx_server: str = ""
    nginx_location: str = ""
    haproxy_bind: str = ""
    haproxy_frontend: str = ""
    haproxy_backend: str = ""
    haproxy_more: str = ""
    ours: tuple = ()
    ours_toml: str = ""


NGINX_TLS = """ssl_certificate {cert}; ssl_certificate_key {key}; ssl_session_cache shared:s:10m;
    ssl_protocols TLSv1.2 TLSv1.3;"""
OURS_TLS = ("--set", "tls.certificate={cert}", "--set", "tls.key={key}")
FILTERS_TOML = """
[origins.origin]
addresses = ["127.0.0.1:{origin}"]
[[filter]]
type = "headers"
request-set = {{ X-Set = "1" }}
request-remove = ["X-Secret"]
response-set = {{ X-Frame-Options = "DENY" }}
[[filter]]
type = "rewrite"
pattern = "^/(.*)$"
replacement = "/new/$1"
[[filter]]
type = "rate-limit"
rate = 1000000
burst = 1000000
"""
# What a gateway behind a balancer does for each request: the client's address from the last trusted hop,
# a name for the request, and a line in a file.
PROXY_TOML = """
[server]
trusted-proxies = ["127.0.0.1"]
[origins.origin]
addresses = ["127.0.0.1:{origin}"]
[[filter]]
type = "request-id"
[[filter]]
type = "access-log"
file = "{folder}/access.log"
"""
# The table of --all, in this order; "plain" is the cell cpu with 1000 connections.
ALL = ["plain", "tls", "http2", "proxy", "cache", "filters", "body-16k", "body-1m", "websocket"]
CELLS = {
    "cpu": Cell([1000, 2000]),
    "plain": Cell(),
    "capacity": Cell(static=True),
    "tail": Cell(static=True),
    "churn": Cell(),
    "memory": Cell([2000], ["nginx", "netty-small", "netty"]),
    "equal-rate": Cell([400], ["netty", "tomcat", "zuul2", "zuul-netty-2013"]),
    "body-16k": Cell([200], payload="16KiB", latency="5ms"),
    "body-1m": Cell([20], payload="1MiB", latency="5ms"),
    "tls": Cell(scheme="https", nginx_listen=" ssl", nginx_server=NGINX_TLS,
                haproxy_bind=" ssl crt {both}", ours=(*OURS_TLS, "--set", "tls.http2=false")),
    "tls-churn": Cell([100], latency="5ms", scheme="https", nginx_listen=" ssl",
                      nginx_server=NGINX_TLS, haproxy_bind=" ssl crt {both}", ours=OURS_TLS),
    "http2": Cell([100], scheme="https", load=("--http2", "--streams", "10"),
                  nginx_listen=" ssl http2", nginx_server=NGINX_TLS,
                  haproxy_bind=" ssl crt {both} alpn h2,http/1.1", ours=OURS_TLS),
    "websocket": Cell([100], scheme="ws", load=("--body", "x" * 100), websocket=True,
                      nginx_location="""proxy_set_header Upgrade $http_upgrade;
      proxy_read_timeout 300s;"""),
    "filters": Cell(
        nginx_http="limit_req_zone $binary_remote_addr zone=r:10m rate=1000000r/s;",
        nginx_location="""limit_req zone=r burst=1000000 nodelay; rewrite ^/(.*)$ /new/$1 break;
      proxy_set_header X-Set 1; proxy_set_header X-Secret ""; add_header X-Frame-Options DENY;""",
        haproxy_frontend="""  stick-table type ip size 100k expire 30s store http_req_rate(1s)
  http-request track-sc0 src
  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 1000000 }}
  http-request set-header X-Set 1
  http-request del-header X-Secret
  http-request replace-path ^/(.*)$ /new/\\1
  http-response set-header X-Frame-Options DENY
""", ours_toml=FILTERS_TOML),
    "proxy": Cell(
        load=("-H", "X-Forwarded-For: 203.0.113.7, 127.0.0.1"),
        nginx_http="""log_format own '$remote_addr $request $status $body_bytes_sent $request_time';
  set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For; real_ip_recursive on;""",
        nginx_location="""access_log {folder}/access.log own buffer=64k flush=1s;
      proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Request-ID $request_id;
      add_header X-Request-ID $request_id;""",
        haproxy_frontend="""  log stdout format raw local0
  option httplog
  option forwardfor
  http-request set-src hdr_ip(X-Forwarded-For,-2) if {{ src 127.0.0.1 }}
  unique-id-format %[uuid()]
  unique-id-header X-Request-ID
  http-response set-header X-Request-ID %[unique-id]
""", ours_toml=PROXY_TOML),
    "cache": Cell(
        static=True,
        nginx_http="proxy_cache_path {folder}/cache keys_zone=c:10m max_size=64m;",
        nginx_location="proxy_cache c; proxy_cache_valid 200 1h;",
        haproxy_frontend="  http-request cache-use c\n  http-response cache-store c\n",
        haproxy_more="cache c\n  total-max-size 64\n  max-age 3600\n",
        ours=("--set", "cache.enabled=true")),
}


def certificate(folder):
    """A self-signed certificate for 127.0.0.1, as the three files that the cells name."""
    cert, key, both = folder / "cert.pem", folder / "key.pem", folder / "both.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                    "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                    str(key), "-out", str(cert)], check=True, stderr=subprocess.DEVNULL)
    both.write_text(cert.read_text() + key.read_text())
    return {"cert": cert, "key": key, "both": both}
