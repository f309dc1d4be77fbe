//! Real servers and their clients in two containers.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bypass_testkit::{require_tool, Namespace};

use crate::library;
use crate::pods::{Pods, ADDRESS, CONTAINER};
use crate::{NOBODY, PATIENCE};

const REDIS: u16 = 6379;
const WEB: u16 = 80;
const UPSTREAM: u16 = 8080;
const DATABASE: u16 = 5432;
/// The client's own address.
const CLIENT: &str = "10.88.0.1";

/// Answers each request with its path, so often.
const ORIGIN: &str = "
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        body = self.path.encode() * 200
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(('10.88.0.1', 8080), Handler).serve_forever()
";
const GATEWAY: &str = "
user root; worker_processes 1; daemon off; pid FOLDER/pid; error_log FOLDER/error.log crit;
events { }
http {
  access_log off;
  proxy_temp_path FOLDER/proxy; client_body_temp_path FOLDER/body; fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
  upstream origin { server 10.88.0.1:8080; keepalive 4; }
  server {
    listen 10.88.0.2:80;
    location / { proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ''; }
  }
}
";

/// A program in a container; it ends with this.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // unshare has `--kill-child`.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two containers, and a folder for their files.
struct Place {
    pods: Pods,
    folder: PathBuf,
    /// Where every user can reach it.
    library: PathBuf,
}

impl Place {
    fn new() -> Self {
        let pods = Pods::bridged();
        let folder = pods.directory.path.with_extension("files");
        fs::create_dir(&folder).expect("a new folder");
        let library = folder.join(library::LIBRARY);
        fs::copy(library::built(), &library).expect("ours");
        Self {
            pods,
            folder,
            library,
        }
    }

    fn container(&self, words: &[&str]) -> Command {
        let mut command = self.pods.accelerated();
        command.env("LD_PRELOAD", &self.library);
        command.arg("unshare").args(CONTAINER.split_whitespace());
        command.args(words).stdin(Stdio::null());
        command
    }

    /// Starts a server in a pod, and waits until it can be connected to.
    fn serve(&self, pod: &Namespace, at: (&str, u16), words: &[&str]) -> Service {
        let mut command = self.container(words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let service = Service(pod.run(|| command.spawn()).expect("a container"));
        let ip: Ipv4Addr = at.0.parse().expect("an address");
        let started = Instant::now();
        while pod.run(|| TcpStream::connect(SocketAddr::from((ip, at.1))).is_err()) {
            assert!(started.elapsed() < PATIENCE, "{words:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        service
    }

    /// What a client prints, which must succeed.
    fn ask(&self, words: &[&str]) -> String {
        let mut command = self.container(words);
        let done = self.pods.client.run(|| command.output()).expect("started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(done.status.success(), "{words:?}: {}", text(&done.stderr));
        text(&done.stdout)
    }

    /// The same, again until the kernel of the client's pod has sent fewer than `segments` meanwhile: a server accepts from
    /// memory from its first accept on, and may be late on a busy machine.
    fn ask_in_memory(&self, segments: u64, words: &[&str]) -> String {
        let started = Instant::now();
        loop {
            let before = sent(&self.pods.client);
            let said = self.ask(words);
            let sent = sent(&self.pods.client) - before;
            if sent < segments {
                return said;
            }
            assert!(started.elapsed() < PATIENCE, "{sent} segments: {words:?}");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Segments that the kernel's TCP has sent in a pod.
fn sent(pod: &Namespace) -> u64 {
    let text = pod.command("cat", "/proc/net/snmp");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next(), lines.next());
    let both = names.zip(values).expect("two lines");
    let mut columns = both.0.split(' ').zip(both.1.split(' '));
    let found = columns.find(|(name, _)| *name == "OutSegs");
    found.expect("a column").1.parse().expect("a number")
}

pub fn redis() {
    require_tool("redis-server");
    require_tool("redis-benchmark");
    let place = Place::new();
    let folder = place.folder.to_str().expect("a path");
    let server = [
        "redis-server",
        "--bind",
        ADDRESS,
        "--protected-mode",
        "no",
        "--save",
        "",
        "--dir",
        folder,
    ];
    let _server = place.serve(&place.pods.server, (ADDRESS, REDIS), &server);
    let asks = |test| {
        [
            "redis-benchmark",
            "-h",
            ADDRESS,
            "-t",
            test,
            "-c",
            "10",
            "-n",
            "5000",
            "-d",
            "500",
            "-r",
            "1000",
            "--csv",
        ]
    };
    for test in ["set", "get", "lpush"] {
        let said = place.ask_in_memory(2500, &asks(test));
        let name = format!("\"{}\",", test.to_uppercase());
        assert!(said.lines().any(|line| line.starts_with(&name)), "{said}");
    }
}

/// curl, nginx in the other container, and behind it a server in curl's.
pub fn gateway() {
    require_tool("nginx");
    require_tool("curl");
    let place = Place::new();
    let folder = place.folder.to_str().expect("a path");
    let config = place.folder.join("nginx.conf");
    fs::write(&config, GATEWAY.replace("FOLDER", folder)).expect("ours");
    let origin = ["python3", "-c", ORIGIN];
    let _origin = place.serve(&place.pods.client, (CLIENT, UPSTREAM), &origin);
    let config = config.to_str().expect("a path");
    let _gateway = place.serve(
        &place.pods.server,
        (ADDRESS, WEB),
        &["nginx", "-e", "stderr", "-c", config],
    );
    let url = format!("http://{ADDRESS}/[100-299]");
    // Both containers' halves of both connections, were they the kernel's, are more than two for each request.
    let said = place.ask_in_memory(200, &["curl", "-sS", "--fail", &url]);
    let wanted: String = (100..300)
        .map(|path| format!("/{path}").repeat(200))
        .collect();
    assert!(said == wanted, "{} bytes of {}", said.len(), wanted.len());
}

fn as_postgres<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let before = [
        "setpriv",
        "--reuid",
        "postgres",
        "--regid",
        "65534",
        "--clear-groups",
    ];
    [&before, words].concat()
}

/// A server that forks for each connection.
pub fn postgresql() {
    require_tool("pgbench");
    let place = Place::new();
    let user = place.pods.client.command("id", "-u postgres");
    let user: u32 = user.trim().parse().expect("a number");
    place.pods.set_directory(0o770, (user, NOBODY));
    std::os::unix::fs::chown(&place.folder, Some(user), None).expect("root");
    let binaries = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL's versions");
    let binaries = binaries.map(|version| version.expect("one").path().join("bin"));
    let binaries = binaries.max().expect("a version");
    let program = |name| binaries.join(name).to_string_lossy().into_owned();
    let data = place.folder.join("data");
    let data = data.to_str().expect("a path");
    let (initdb, postgres) = (program("initdb"), program("postgres"));
    place.ask(&as_postgres(&[
        &initdb,
        "-D",
        data,
        "-A",
        "trust",
        "--no-sync",
    ]));
    let rules = place.folder.join("data/pg_hba.conf");
    fs::write(rules, "host all all samenet trust\n").expect("ours");
    let listens = format!("listen_addresses={ADDRESS}");
    let server = as_postgres(&[
        &postgres,
        "-D",
        data,
        "-k",
        data,
        "-c",
        "fsync=off",
        "-c",
        &listens,
    ]);
    let _server = place.serve(&place.pods.server, (ADDRESS, DATABASE), &server);
    let to = ["-h", ADDRESS, "-U", "postgres", "postgres"];
    let sum = "select count(*), sum(i) from generate_series(1, 100000) i";
    let asks = as_postgres(&[&["psql", "-At", "-c", sum][..], &to].concat());
    assert_eq!(place.ask(&asks).trim(), "100000|5000050000");
    place.ask(&as_postgres(
        &[&["pgbench", "-i", "-q", "-s", "1"][..], &to].concat(),
    ));
    let load = [
        "pgbench", "-n", "-S", "-M", "prepared", "-c", "4", "-j", "2", "-t", "500",
    ];
    let said = place.ask_in_memory(500, &as_postgres(&[&load[..], &to].concat()));
    assert!(said.contains("actually processed: 2000/2000"), "{said}");
}
