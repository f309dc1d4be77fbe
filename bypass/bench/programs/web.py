"""HTTP servers and proxies."""

import os

import http_client as http
from place import digest


def nginx_conf(place, body, workers=2, name="nginx.conf"):
    """Starts nothing; a configuration around `http { … }`'s body, with everything in the folder."""
    temporary = "".join(f"{kind}_temp_path {place.folder}/{kind}; "
                        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return place.write(name, f"""
daemon off; user root; worker_processes {workers}; pid {place.folder}/nginx.pid; error_log stderr;
events {{ worker_connections 256; }}
http {{ access_log off; types {{ text/plain txt; }} keepalive_requests 1000000; {temporary} {body} }}
""")


def start_nginx(place, port, body=None, workers=2):
    """nginx with the files of http.files."""
    root = http.files(place)
    body = body or f"sendfile on; server {{ listen 127.0.0.1:{port}; root {root}; }}"
    place.server(["nginx", "-p", place.folder, "-c", nginx_conf(place, body, workers)], port)


def nginx(place):
    start_nginx(place, 8080)
    yield from http.ask(place, 8080, requests=20000)


PHP = """<?php
$body = file_get_contents('php://input');
echo $_SERVER['REQUEST_METHOD'], ' ', strlen($body), ' ', md5($body), "\\n";
echo str_repeat('php ', (int)($_GET['n'] ?? 10));
"""


def php_fpm(place):
    """A static pool of processes that block in accept."""
    place.write("www/index.php", PHP)
    place.write("fpm.conf", f"""
[global]
error_log = /dev/stderr
daemonize = no
pid = {place.folder}/fpm.pid
[www]
user = www-data
group = www-data
listen = 127.0.0.1:9000
pm = static
pm.max_children = 4
pm.max_requests = 1000
""")
    place.server(["php-fpm8.2", "-n", "-y", place.folder / "fpm.conf", "-F"], 9000)
    script = place.folder / "www/index.php"
    start_nginx(place, 8080, f"""server {{ listen 127.0.0.1:8080; location / {{
        fastcgi_pass 127.0.0.1:9000; fastcgi_param SCRIPT_FILENAME {script}; fastcgi_read_timeout 5;
        fastcgi_param REQUEST_METHOD $request_method; fastcgi_param QUERY_STRING $query_string;
        fastcgi_param CONTENT_LENGTH $content_length; fastcgi_param CONTENT_TYPE $content_type; }} }}""")
    yield from http.ask(place, 8080, ("/index.php", "/index.php?n=100000"), requests=6000, posts=True)


def apache(place, kind, settings):
    root = http.files(place)
    modules = "/usr/lib/apache2/modules"
    place.write("apache.conf", f"""
ServerRoot {place.folder}
PidFile {place.folder}/apache.pid
ServerName localhost
Listen 127.0.0.1:8080
LoadModule mpm_{kind}_module {modules}/mod_mpm_{kind}.so
LoadModule authz_core_module {modules}/mod_authz_core.so
User www-data
Group www-data
DocumentRoot {root}
ErrorLog /dev/stderr
Mutex file:{place.folder}
MaxKeepAliveRequests 0
{settings}
""")
    place.server(["/usr/sbin/apache2", "-f", place.folder / "apache.conf", "-DFOREGROUND"], 8080)
    yield from http.ask(place, 8080, requests=8000)


def apache_prefork(place):
    yield from apache(place, "prefork", "StartServers 256\nMinSpareServers 256\nMaxSpareServers 256\nServerLimit 256\n"
                                        "MaxRequestWorkers 256\nMaxConnectionsPerChild 500")
    # A process for each of the connections that are kept open.
    yield http.load(place, "http://127.0.0.1:8080/small.txt", 20000, ["-k"], connections=250)


def apache_worker(place):
    yield from apache(place, "worker", "StartServers 2\nThreadsPerChild 8\nMaxRequestWorkers 32")


def apache_event(place):
    # More threads than connections: without an idle one it closes connections that wait for a request.
    yield from apache(place, "event", "StartServers 2\nThreadsPerChild 25\nMaxRequestWorkers 75")


def lighttpd(place):
    root = http.files(place)
    place.write("lighttpd.conf", f'server.document-root = "{root}"\nserver.port = 8080\n'
                                 f'server.bind = "127.0.0.1"\nserver.max-keep-alive-requests = 100000\n')
    place.server(["lighttpd", "-D", "-f", place.folder / "lighttpd.conf"], 8080)
    yield from http.ask(place, 8080, requests=10000)


def haproxy(place):
    start_nginx(place, 8081)
    place.write("haproxy.cfg", """
global
  maxconn 500
defaults
  mode http
  timeout connect 5s
  timeout client 10s
  timeout server 10s
frontend http
  bind 127.0.0.1:8080
  default_backend nginx
backend nginx
  server one 127.0.0.1:8081 check inter 500ms
frontend tcp
  mode tcp
  bind 127.0.0.1:8082
  default_backend plain
backend plain
  mode tcp
  server one 127.0.0.1:8081
""")
    place.server(["haproxy", "-db", "-f", place.folder / "haproxy.cfg"], 8082)
    yield from http.ask(place, 8080, requests=6000)
    yield from http.ask(place, 8082, requests=3000)


def varnish(place):
    start_nginx(place, 8081)
    place.write("v.vcl", 'vcl 4.0; backend default { .host = "127.0.0.1"; .port = "8081"; }\n'
                         'sub vcl_backend_response { if (bereq.url ~ "large") { set beresp.uncacheable = true; } }')
    place.server(["varnishd", "-F", "-n", place.folder / "v", "-a", "127.0.0.1:8080", "-f",
                  place.folder / "v.vcl", "-s", "malloc,32m", "-j", "none"], 8080)
    yield from http.ask(place, 8080, requests=6000)


def through_proxy(place, port, kind="http"):
    proxy = ["curl", "-sS", "-x", f"{kind}://127.0.0.1:{port}", "-o"]
    for path in ("/small.txt", "/large.bin"):
        yield place.client([*proxy, place.folder / "got", "-w", "%{http_code} %{size_download}",
                            f"http://127.0.0.1:8081{path}"])
        yield http.checksum(place.folder / "got")
    for _ in range(20):
        yield place.client([*proxy, "/dev/null", "-w", "%{http_code} %{num_connects}\n",
                            *["http://127.0.0.1:8081/small.txt"] * 5])


def squid(place):
    start_nginx(place, 8081)
    os.chmod(place.work, 0o755)
    place.give_to("proxy", "run")
    place.write("squid.conf", f"""
http_port 127.0.0.1:8080
http_access allow all
cache deny all
access_log none
cache_log /dev/stderr
pid_filename {place.folder}/run/squid.pid
coredump_dir {place.folder}/run
shutdown_lifetime 1 seconds
visible_hostname localhost
pinger_enable off
""")
    place.server(["squid", "-N", "-f", place.folder / "squid.conf"], 8080)
    yield from through_proxy(place, 8080)


def tinyproxy(place):
    start_nginx(place, 8081)
    place.write("tiny.conf", "Port 8080\nListen 127.0.0.1\nTimeout 20\nMaxClients 50\nLogLevel Error\n")
    place.server(["tinyproxy", "-d", "-c", place.folder / "tiny.conf"], 8080)
    yield from through_proxy(place, 8080)


def dante(place):
    start_nginx(place, 8081)
    place.write("danted.conf", """
logoutput: stderr
internal: 127.0.0.1 port = 1080
external: 127.0.0.1
socksmethod: none
clientmethod: none
user.privileged: root
user.unprivileged: proxy
client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
""")
    place.server(["danted", "-f", place.folder / "danted.conf", "-p", place.folder / "pid"], 1080)
    yield from through_proxy(place, 1080, "socks5")
    yield from through_proxy(place, 1080, "socks4")


def certificate(place):
    """A self-signed one: certificate and key in one file."""
    both = place.folder / "both.pem"
    place.plainly(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                   "/CN=localhost", "-keyout", place.folder / "key.pem", "-out", place.folder / "crt.pem"])
    both.write_text((place.folder / "key.pem").read_text() + (place.folder / "crt.pem").read_text())
    return both


def stunnel(place):
    start_nginx(place, 8081)
    place.write("st.conf", f"foreground = yes\npid =\n[tls]\naccept = 127.0.0.1:8443\n"
                           f"connect = 127.0.0.1:8081\ncert = {certificate(place)}\n")
    place.server(["stunnel4", place.folder / "st.conf"], 8443)
    for path in ("/small.txt", "/large.bin"):
        yield place.client(["curl", "-ksS", "-o", place.folder / "got", "-w", "%{http_code}",
                            f"https://127.0.0.1:8443{path}"])
        yield http.checksum(place.folder / "got")
    yield http.load(place, "https://127.0.0.1:8443/small.txt", 200, [])


def nghttpd(place):
    root = http.files(place)
    place.server(["nghttpd", "--no-tls", "-d", root, "-a", "127.0.0.1", 8080], 8080)
    for path in ("/small.txt", "/large.bin"):
        yield place.client(["curl", "-sS", "--http2-prior-knowledge", "-o", place.folder / "got", "-w",
                            "%{http_code} %{http_version}", f"http://127.0.0.1:8080{path}"])
        yield http.checksum(place.folder / "got")
    urls = ["http://127.0.0.1:8080/small.txt", "http://127.0.0.1:8080/large.bin"] * 10
    # Frames of several streams come in any order.
    yield digest("".join(sorted(place.client(["nghttp", "-m", "3", *urls]))))
