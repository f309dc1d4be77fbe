"""Servers of languages and their frameworks; each answers /small.txt and takes a POST."""

import subprocess
import sys
import venv

import http_client as http

GO = """package main
import ("io"; "net/http"; "strings"; "fmt")
func main() {
    http.HandleFunc("/small.txt", func(w http.ResponseWriter, r *http.Request) {
        if r.Method == "POST" { body, _ := io.ReadAll(r.Body); fmt.Fprint(w, len(body)); return }
        io.WriteString(w, strings.Repeat("hello ", 200)) })
    http.ListenAndServe("127.0.0.1:8080", nil)
}
"""
NODE = """
require('http').createServer((request, response) => {
  let length = 0;
  request.on('data', piece => length += piece.length);
  request.on('end', () => {
    if (request.url !== '/small.txt') response.statusCode = 404;
    response.end(request.method === 'POST' ? String(length) : 'hello '.repeat(200));
  });
}).listen(8080, '127.0.0.1');
"""
JAVA = """
import com.sun.net.httpserver.*;
import java.net.*;
import java.util.concurrent.*;
public class Main {
    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 50);
        server.createContext("/small.txt", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            byte[] answer = exchange.getRequestMethod().equals("POST")
                ? ("" + body.length).getBytes() : "hello ".repeat(200).getBytes();
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
    }
}
"""
WSGI = """
def app(environ, start):
    if environ['PATH_INFO'] != '/small.txt':
        start('404 Not Found', [('Content-Length', '0')])
        return [b'']
    body = environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))
    answer = str(len(body)).encode() if environ['REQUEST_METHOD'] == 'POST' else b'hello ' * 200
    start('200 OK', [('Content-Length', str(len(answer)))])
    return [answer]
"""
ASGI = """
async def app(scope, receive, send):
    if scope['type'] != 'http':
        return
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get('body', b'')), message.get('more_body', False)
    answer = str(length).encode() if scope['method'] == 'POST' else b'hello ' * 200
    status = 200 if scope['path'] == '/small.txt' else 404
    head = [(b'content-length', str(len(answer)).encode())]
    await send({'type': 'http.response.start', 'status': status, 'headers': head})
    await send({'type': 'http.response.body', 'body': answer})
"""
AIOHTTP = """
from aiohttp import web
async def small(request):
    body = await request.read()
    return web.Response(text=str(len(body)) if request.method == 'POST' else 'hello ' * 200)
app = web.Application()
app.add_routes([web.route('*', '/small.txt', small)])
web.run_app(app, host='127.0.0.1', port=8080, print=None, access_log=None)
"""
RACK = """
run lambda { |env|
  return [404, {}, []] unless env['PATH_INFO'] == '/small.txt'
  body = env['REQUEST_METHOD'] == 'POST' ? env['rack.input'].read.bytesize.to_s : 'hello ' * 200
  [200, { 'Content-Length' => body.bytesize.to_s }, [body]]
}
"""
PSGI = """
sub {
    my $env = shift;
    return [404, [], []] unless $env->{PATH_INFO} eq '/small.txt';
    my $body = '';
    $env->{'psgi.input'}->read($body, $env->{CONTENT_LENGTH} || 0) if $env->{REQUEST_METHOD} eq 'POST';
    my $answer = $env->{REQUEST_METHOD} eq 'POST' ? length($body) : 'hello ' x 200;
    [200, ['Content-Length' => length $answer], [$answer]];
}
"""
LWP = """
use LWP::UserAgent;
my $agent = LWP::UserAgent->new(keep_alive => 1, timeout => 20);
my $sum = 0;
$sum += length $agent->get('http://127.0.0.1:8080/small.txt')->content for 1 .. 100;
print "$sum\\n";
"""
CARGO = """[package]
name = "echo"
version = "0.1.0"
edition = "2021"
[dependencies]
tokio = { version = "1", features = ["net", "rt-multi-thread", "macros", "io-util", "time"] }
[workspace]
"""
TOKIO = """
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn serve(mut stream: TcpStream) {
    let mut got = Vec::new();
    let mut bytes = [0u8; 8192];
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        got.extend_from_slice(&bytes[..count]);
        while let Some(end) = got.windows(4).position(|four| four == b"\\r\\n\\r\\n") {
            let head = String::from_utf8_lossy(&got[..end + 4]).into_owned();
            got.drain(..end + 4);
            let (status, body) = if head.starts_with("GET /small.txt ") {
                ("200 OK", "hello ".repeat(200))
            } else {
                ("404 Not Found", String::new())
            };
            let keep = !head.contains("HTTP/1.0") || head.contains("Keep-Alive");
            let line = if keep { "keep-alive" } else { "close" };
            let answer = format!("HTTP/1.1 {status}\\r\\nContent-Length: {}\\r\\nConnection: {line}\\r\\n\\r\\n{body}",
                body.len());
            if stream.write_all(answer.as_bytes()).await.is_err() || !keep {
                return;
            }
        }
    }
}

async fn ask() -> usize {
    let mut stream = TcpStream::connect("127.0.0.1:8080").await.unwrap();
    let mut sum = 0;
    for _ in 0..100 {
        stream.write_all(b"GET /small.txt HTTP/1.1\\r\\n\\r\\n").await.unwrap();
        let mut bytes = [0u8; 4096];
        let mut text = String::new();
        while text.len() < 1200 || !text.ends_with("hello ") {
            let count = stream.read(&mut bytes).await.unwrap();
            assert!(count > 0);
            text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        sum += text.len();
    }
    sum
}

#[tokio::main]
async fn main() {
    if std::env::args().nth(1).as_deref() == Some("client") {
        let all: Vec<_> = (0..20).map(|_| tokio::spawn(ask())).collect();
        let mut sum = 0;
        for one in all {
            sum += one.await.unwrap();
        }
        println!("{sum}");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:8080").await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(serve(stream));
    }
}
"""

ONE = ("/small.txt",)


def prepare_python(work):
    """An interpreter with the packages; made on first use, in the machine's own network."""
    folder = work / "venv"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "pip", "install", "-q", "gunicorn", "uvicorn", "uvloop", "aiohttp"],
                       check=True)
        (folder / "ready").touch()


def prepare_tokio(work):
    folder = work / "tokio"
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "Cargo.toml").write_text(CARGO)
    (folder / "src" / "main.rs").write_text(TOKIO)
    subprocess.run(["cargo", "build", "-q", "--release"], cwd=folder, check=True)


def prepare_go(work):
    folder = work / "go"
    folder.mkdir(exist_ok=True)
    (folder / "main.go").write_text(GO)
    subprocess.run(["go", "build", "-o", "server", "main.go"], cwd=folder, check=True)


def prepare_java(work):
    folder = work / "java"
    folder.mkdir(exist_ok=True)
    (folder / "Main.java").write_text(JAVA)
    subprocess.run(["javac", "-d", folder, folder / "Main.java"], check=True)


PREPARATIONS = {"gunicorn": prepare_python, "uvicorn": prepare_python, "aiohttp": prepare_python,
                "tokio": prepare_tokio, "go": prepare_go, "java": prepare_java}


def prepare(name, work):
    """Builds and downloads before a program can run in a namespace without a network."""
    for prefix, work_of in PREPARATIONS.items():
        if name.split("-")[0] == prefix:
            work_of(work)


def python_http(place):
    root = http.files(place)
    place.server([sys.executable, "-m", "http.server", "8080", "--bind", "127.0.0.1"], 8080, cwd=root)
    yield from http.ask(place, 8080, requests=1000)
    place.client(["wget", "-q", "-O", place.folder / "wgot", "http://127.0.0.1:8080/large.bin"])
    yield http.checksum(place.folder / "wgot")


def in_venv(place, words):
    place.write("app.py", WSGI)
    place.write("asgi.py", ASGI)
    python = place.work / "venv" / "bin" / "python"
    place.server([python, *words], 8080)
    yield from http.ask(place, 8080, ONE, requests=3000, posts=True)


def gunicorn_sync(place):
    yield from in_venv(place, ["-m", "gunicorn", "-w", "3", "-b", "127.0.0.1:8080", "app:app"])


def gunicorn_gthread(place):
    yield from in_venv(place, ["-m", "gunicorn", "-k", "gthread", "-w", "2", "--threads", "4", "-b",
                               "127.0.0.1:8080", "app:app"])


def uvicorn(place, loop):
    yield from in_venv(place, ["-m", "uvicorn", "--loop", loop, "--host", "127.0.0.1", "--port", "8080",
                               "--log-level", "warning", "--workers", "2", "asgi:app"])


def uvicorn_asyncio(place):
    yield from uvicorn(place, "asyncio")


def uvicorn_uvloop(place):
    yield from uvicorn(place, "uvloop")


def aiohttp(place):
    yield from in_venv(place, ["-c", AIOHTTP])


def node(place):
    place.write("server.js", NODE)
    place.server(["node", place.folder / "server.js"], 8080)
    yield from http.ask(place, 8080, ONE, requests=5000, posts=True)
    ask = ("let n = 0; const next = async () => { for (let i = 0; i < 300; i++) "
           "n += (await (await fetch('http://127.0.0.1:8080/small.txt')).text()).length; console.log(n); }; next();")
    yield place.client(["node", "-e", ask])


def go(place):
    place.server([place.work / "go" / "server"], 8080)
    yield from http.ask(place, 8080, ONE, requests=5000, posts=True)


def tokio(place):
    binary = place.work / "tokio" / "target" / "release" / "echo"
    place.server([binary], 8080)
    yield from http.ask(place, 8080, ONE, requests=8000)
    yield place.client([binary, "client"])


def java(place):
    place.server(["java", "-cp", place.work / "java", "Main"], 8080)
    yield from http.ask(place, 8080, ONE, requests=3000, posts=True)


def puma(place):
    place.write("config.ru", RACK)
    place.server(["puma", "-b", "tcp://127.0.0.1:8080", "-t", "4:4", "-w", "2", place.folder / "config.ru"], 8080)
    yield from http.ask(place, 8080, ONE, requests=3000, posts=True)


def starman(place):
    place.write("app.psgi", PSGI)
    place.server(["starman", "--listen", "127.0.0.1:8080", "--workers", "4", "--max-requests", "100000",
                  place.folder / "app.psgi"], 8080)
    # Four processes, each with one connection at a time: a second of waiting ends one that is kept open.
    yield from http.ask(place, 8080, ONE, requests=3000, keep=False, posts=True)
    yield place.client(["perl", "-e", LWP])


def erlang(place):
    root = http.files(place)
    start = ("inets:start(), {ok, _} = inets:start(httpd, [{port, 8080}, {bind_address, {127,0,0,1}}, "
             f"{{server_name, \"x\"}}, {{server_root, \"{root}\"}}, {{document_root, \"{root}\"}}, "
             "{modules, [mod_get]}]).")
    place.server(["erl", "-noinput", "-noshell", "-eval", start], 8080, env={"HOME": str(place.folder)})
    yield from http.ask(place, 8080, requests=1500)
