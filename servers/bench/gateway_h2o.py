"""h2o as a contender of gateway.py: its configuration for a cell.

The program is that of the package h2o of Debian 12. Cells without a configuration for h2o are refused.
"""

import shutil

# Its own bounds would close connections that the cells keep; a thread as the others have one.
CONFIGURATION = """
num-threads: 1
user: root
pid-file: {folder}/h2o.pid
error-log: {folder}/h2o.err
max-connections: 20000
http1-request-timeout: 300
http2-idle-timeout: 300
proxy.timeout.io: 300000
proxy.timeout.keepalive: 300000
listen:
  host: 127.0.0.1
  port: {port}
TLShosts:
  default:
    paths:
      /:
        proxy.reverse.url: http://127.0.0.1:{origin}/
        proxy.preserve-host: ON
        proxy.websocket: WEBSOCKET
"""
TLS = """  ssl:
    certificate-file: {cert}
    key-file: {key}
    ocsp-update-interval: 0
"""


def h2o(cell):
    """How it is started."""
    found = shutil.which("h2o") or "/usr/bin/h2o"
    if cell.ours_toml or cell.nginx_http:
        raise SystemExit("h2o has no configuration for this cell; leave it out with --only")
    text = CONFIGURATION.replace("TLS", TLS if cell.scheme == "https" else "")
    text = text.replace("WEBSOCKET", "ON" if cell.websocket else "OFF")
    return {"command": f"{found} -c {{folder}}/h2o.conf", "files": {"h2o.conf": text}}
