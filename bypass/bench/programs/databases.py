"""Stores and databases."""

import re
import shutil

PSQL = "/usr/lib/postgresql/15/bin"


def redis(place):
    place.server(["redis-server", "--port", "6379", "--bind", "127.0.0.1", "--protected-mode", "no",
                  "--save", "", "--dir", place.folder, "--io-threads", "2"], 6379)
    cli = ["redis-cli", "-h", "127.0.0.1", "-p", "6379"]
    yield place.client([*cli, "SET", "key", "value"])
    yield place.client([*cli, "GET", "key"])
    commands = "".join(f"SET k{i} {'v' * (i % 300)}\nAPPEND k{i} x\nSTRLEN k{i}\n" for i in range(2000))
    yield place.client(cli, input=commands.encode())[-200:]
    yield place.client([*cli, "EVAL", "return string.rep('x', 1000000)", "0"])[-50:]
    text = place.client(["redis-benchmark", "-h", "127.0.0.1", "-p", "6379", "-q", "-n", "20000", "-c", "20",
                         "-P", "4", "-t", "set,get,lpush,lrange_100"])
    yield sorted(set(re.findall(r"^(.*): [\d.]+ requests", text.replace("\r", "\n"), re.M)))
    yield place.client([*cli, "DBSIZE"])


MEMCACHED = """
import socket
def ask(connection, data, end):
    connection.sendall(data)
    got = b''
    while not got.endswith(end):
        piece = connection.recv(65536)
        if not piece: break
        got += piece
    return got
all = [socket.create_connection(('127.0.0.1', 11211)) for _ in range(30)]
wrong = 0
for i in range(3000):
    one, body = all[i % 30], bytes([i % 251]) * (i * 7 % 50000)
    wrong += ask(one, b'set k%d 0 0 %d\\r\\n%s\\r\\n' % (i % 100, len(body), body), b'\\r\\n') != b'STORED\\r\\n'
    got = ask(all[(i + 1) % 30], b'get k%d\\r\\n' % (i % 100), b'END\\r\\n')
    wrong += got != b'VALUE k%d 0 %d\\r\\n%s\\r\\nEND\\r\\n' % (i % 100, len(body), body)
print('wrong', wrong)
"""


def memcached(place):
    place.server(["memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", "11211", "-t", "2"], 11211)
    yield place.client(["/usr/bin/python3", "-c", MEMCACHED])


def mariadb(place):
    """As Debian installs it: with native asynchronous I/O."""
    data = place.give_to("mysql", "data")
    place.plainly(["mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={data}",
                   "--auth-root-authentication-method=normal", "--skip-test-db"])
    place.server(["mariadbd", "--no-defaults", "--user=mysql", f"--datadir={data}", "--port=3307",
                  "--skip-grant-tables", "--bind-address=127.0.0.1", f"--socket={data}/sock", f"--pid-file={data}/pid"], 3307)
    words = ["mariadb", "--no-defaults", "-h127.0.0.1", "-P3307", "-uroot", "--protocol=tcp"]
    yield place.client([*words, "-e", "create database d; use d; create table t(a int primary key, b text);"
                        "insert into t select seq, repeat('x', seq % 500) from seq_1_to_3000;"
                        "select count(*), sum(length(b)) from t"])
    yield place.client([*words, "-e", "select repeat('y', 3000000) as big"])[-20:]
    slap = ["mariadb-slap", "--no-defaults", "-h127.0.0.1", "-P3307", "-uroot", "--protocol=tcp"]
    text = place.client([*slap, "--auto-generate-sql", "--concurrency=8", "--number-of-queries=2000"])
    yield re.sub(r"[\d.]+ seconds", "", text)


def start_postgresql(place):
    data = place.give_to("postgres", "data")
    shutil.chown(place.folder, "postgres")
    place.plainly([f"{PSQL}/initdb", "-D", data, "-A", "trust"], user="postgres", cwd=data)
    with open(data / "pg_hba.conf", "a") as rules:
        rules.write("host all all samenet trust\n")
    place.server([f"{PSQL}/postgres", "-D", data, "-p", "5433", "-k", data, "-c", "fsync=off", "-c",
                  "listen_addresses=127.0.0.1", "-c", "max_connections=220"], 5433, user="postgres", cwd=data)


def ask_postgresql(place, port):
    where = ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]
    yield place.client(["psql", "-At", "-c", "create table t as select i, repeat('x', i % 100) b from "
                        "generate_series(1, 20000) i", "-c", "select count(*), sum(length(b)) from t", *where])
    yield place.client(["psql", "-At", "-c", "select repeat('y', 3000000)", *where])[-20:]
    yield place.client(["psql", "-At", "-c", "copy t to stdout", *where])[-30:]
    for mode in ("simple", "extended", "prepared"):
        place.client(["pgbench", "-q", "-i", "-s", "1", *where])
        text = place.client(["pgbench", "-n", "-M", mode, "-c", "8", "-j", "2", "-t", "100", *where])
        yield re.findall(r"actually processed: (\S+)|failed transactions: (\d+)", text)


def postgresql(place):
    start_postgresql(place)
    yield from ask_postgresql(place, 5433)
    # A process for each of the connections of one client.
    text = place.client(["pgbench", "-n", "-S", "-c", "200", "-j", "2", "-t", "50", "-h", "127.0.0.1", "-p", "5433",
                         "-U", "postgres", "postgres"])
    yield re.findall(r"actually processed: (\S+)|failed transactions: (\d+)", text)


def pgbouncer(place):
    start_postgresql(place)
    place.write("users", '"postgres" ""\n')
    place.write("bouncer.ini", f"""
[databases]
* = host=127.0.0.1 port=5433
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = 6432
auth_type = trust
auth_file = {place.folder}/users
unix_socket_dir =
pool_mode = session
max_client_conn = 100
""")
    place.server(["pgbouncer", place.folder / "bouncer.ini"], 6432, user="postgres")
    yield from ask_postgresql(place, 6432)
