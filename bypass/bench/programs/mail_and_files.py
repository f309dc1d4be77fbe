"""Mail, files and logins: programs that change their user and confine themselves."""

import os
import pathlib
import pwd

from place import digest

FILES = 60


def tree(place, name):
    """A folder of files of several sizes."""
    for i in range(FILES):
        place.write(f"{name}/{i % 7}/file-{i}", bytes([i]) * (i * i * 100 + i))
    return place.folder / name


def same(place, one, other):
    return place.plainly(["diff", "-r", "-q", one, other]) or "equal"


def rsync(place):
    source, target = tree(place, "source"), place.give_to("nobody", "target")
    place.write("rsyncd.conf", f"""
address = 127.0.0.1
port = 8730
use chroot = no
uid = nobody
gid = nogroup
log file = /dev/stderr
pid file = {place.folder}/rsyncd.pid
[from]
path = {source}
[to]
path = {target}
read only = no
""")
    place.server(["rsync", "--daemon", "--no-detach", f"--config={place.folder}/rsyncd.conf"], 8730)
    pulled = place.folder / "pulled"
    yield place.client(["rsync", "-a", "rsync://127.0.0.1:8730/from/", f"{pulled}/"])
    yield same(place, source, pulled)
    yield place.client(["rsync", "-r", f"{source}/", "rsync://127.0.0.1:8730/to/"])
    yield same(place, source, target)
    yield len(place.client(["rsync", "-r", "rsync://127.0.0.1:8730/from/"]).splitlines())


def sshd(place):
    os.makedirs("/run/sshd", exist_ok=True)
    for name in ("host", "own"):
        place.plainly(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place.folder / name])
    keys = place.write("keys", (place.folder / "own.pub").read_text())
    keys.chmod(0o600)
    place.server(["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-h", place.folder / "host", "-p", "2222",
                  "-o", "ListenAddress=127.0.0.1", "-o", f"AuthorizedKeysFile={keys}", "-o", "StrictModes=no",
                  "-o", "PermitRootLogin=yes", "-o", "Subsystem=sftp internal-sftp"], 2222)
    ways = ["-i", place.folder / "own", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
            "-o", "LogLevel=ERROR", "-F", "/dev/null"]
    login = ["ssh", *ways, "-p", "2222", "root@127.0.0.1"]
    yield place.client([*login, "echo logged in; id -un"])
    yield digest(place.client([*login, "head -c 3000000 /dev/zero"]))
    yield digest(place.client([*login, "cat"], input=bytes(range(128)) * 20000))
    source = place.write("source", bytes(range(256)) * 8000)
    for words in ([], ["-O"]):
        place.client(["scp", *words, "-q", *ways, "-P", "2222", source, f"root@127.0.0.1:{place.folder}/copy"])
        yield digest((place.folder / "copy").read_bytes())
        (place.folder / "copy").unlink()
    for _ in range(5):
        yield place.client([*login, "true"])


def vsftpd(place):
    source = tree(place, "ftp")
    place.write("ftp/large.bin", bytes(range(256)) * 8000)
    upload = place.give_to("ftp", "ftp/upload") if _has_user("ftp") else None
    os.makedirs("/run/vsftpd/empty", exist_ok=True)
    place.write("vsftpd.conf", f"""
listen=YES
listen_address=127.0.0.1
listen_port=2121
background=NO
anonymous_enable=YES
local_enable=NO
write_enable=YES
anon_upload_enable=YES
anon_umask=022
anon_root={source}
connect_from_port_20=NO
secure_chroot_dir=/run/vsftpd/empty
""")
    place.server(["vsftpd", place.folder / "vsftpd.conf"], 2121)
    for words in (["--ftp-pasv"], ["--ftp-port", "-"]):
        yield digest(place.client(["curl", "-sS", *words, "ftp://127.0.0.1:2121/large.bin"]).encode("latin-1", "replace"))
        yield len(place.client(["curl", "-sS", *words, "ftp://127.0.0.1:2121/3/"]).splitlines())
    if upload:
        yield place.client(["curl", "-sS", "-T", place.folder / "ftp/large.bin", "ftp://127.0.0.1:2121/upload/x"])
        yield digest((upload / "x").read_bytes())


def _has_user(name):
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


SMTP = """
import smtplib
for i in range(40):
    with smtplib.SMTP('127.0.0.1', 2525, timeout=20) as server:
        print(server.noop()[0], end=' ')
        for n in range(3):
            server.sendmail('a@localhost', ['b@localhost'], 'Subject: %d\\r\\n\\r\\n%s' % (i, 'line\\r\\n' * 2000))
print('sent')
"""


def exim(place):
    spool = place.give_to("Debian-exim", "spool")
    place.write("exim.conf", f"""
spool_directory = {spool}
log_file_path = {spool}/%slog
primary_hostname = localhost
daemon_smtp_ports = 2525
local_interfaces = 127.0.0.1
smtp_accept_max = 50
smtp_accept_max_per_connection = 100
queue_only = true
acl_smtp_rcpt = accept
acl_smtp_data = accept
host_lookup =
rfc1413_query_timeout = 0s
trusted_users = Debian-exim
""")
    # Without its set-uid bit: the loader preloads nothing into a program that has one.
    daemon = place.write("exim4", pathlib.Path("/usr/sbin/exim4").read_bytes())
    daemon.chmod(0o755)
    place.server([daemon, "-C", place.folder / "exim.conf", "-bdf", "-q1h"], 2525)
    yield place.client(["/usr/bin/python3", "-c", SMTP])
    yield len(list((spool / "input").glob("*-D")))


IMAP = """
import imaplib
for i in range(8):
    box = imaplib.IMAP4('127.0.0.1', 1143)
    print(box.login('nobody', 'secret')[0], box.select('INBOX')[0], end=' ')
    for n in range(5):
        print(box.append('INBOX', '', None, b'Subject: x\\r\\n\\r\\n' + b'body\\r\\n' * 5000)[0], end=' ')
    print(box.select('INBOX')[1], len(box.fetch('1', '(BODY[])')[1][0][1]), box.logout()[0])
"""


def dovecot(place):
    place.give_to("nobody", "mail")
    for name in ("base", "state"):
        (place.folder / name).mkdir()
    place.write("users", "nobody:{PLAIN}secret\n")
    place.write("dovecot.conf", f"""
base_dir = {place.folder}/base
state_dir = {place.folder}/state
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
log_path = /dev/stderr
mail_location = maildir:{place.folder}/mail/%u
first_valid_uid = 1
passdb {{
  driver = passwd-file
  args = {place.folder}/users
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={place.folder}/mail
}}
service imap-login {{
  inet_listener imap {{
    port = 1143
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
""")
    place.server(["dovecot", "-F", "-c", place.folder / "dovecot.conf"], 1143)
    yield place.client(["/usr/bin/python3", "-c", IMAP])
