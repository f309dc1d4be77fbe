// The corpus against real origins: what one of them understands is what the gateway meant.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.catalina.startup.Tomcat;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Each origin answers with the method and the target that it took from what it received. */
@Timeout(240)
abstract class OriginsContract extends CarrierContract {
    private static final String BEHIND = "GET /behind HTTP/1.1\r\nHost: a\r\n\r\n";
    private static final String NGINX = """
            daemon off;
            worker_processes 1;
            pid FOLDER/nginx.pid;
            error_log FOLDER/error.log;
            events { worker_connections 1024; }
            http {
                access_log off;
                client_body_temp_path FOLDER;
                proxy_temp_path FOLDER;
                fastcgi_temp_path FOLDER;
                uwsgi_temp_path FOLDER;
                scgi_temp_path FOLDER;
                merge_slashes off;
                server {
                    listen HOST:PORT;
                    location / { return 200 "$request_method $request_uri"; }
                }
            }
            """;
    private static final String HAPROXY = """
            defaults
              mode http
              timeout client 30s
              timeout server 30s
              timeout connect 1s
            frontend echo
              bind HOST:PORT
              http-request return status 200 content-type text/plain lf-string "%[method] %[pathq]"
            """;

    /** Of this process alone: no other one takes a port there before the program does. */
    private static final String HOST = host(ProcessHandle.current().pid());

    @TempDir
    Path folder;

    private static String host(long pid) {
        return "127.77." + (pid >> 8 & 0xff) + "." + (pid & 0xff);
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName(HOST))) {
            return socket.getLocalPort();
        }
    }

    /** The address at which the program listens. */
    private String program(String text, String name, String... command) throws Exception {
        assumeTrue(Files.isExecutable(Path.of(command[0])), command[0] + " is not installed");
        int port = freePort();
        Path config = Files.writeString(folder.resolve(name), text.replace("PORT",
                String.valueOf(port)).replace("HOST", HOST).replace("FOLDER", folder.toString()));
        String[] whole = java.util.Arrays.copyOf(command, command.length + 1);
        whole[command.length] = config.toString();
        Process process = new ProcessBuilder(whole).redirectErrorStream(true)
                .redirectOutput(folder.resolve(name + ".log").toFile()).start();
        closedLater(() -> {
            process.destroy();
            process.waitFor(30, TimeUnit.SECONDS);
        });
        awaitPort(process, port, folder.resolve(name + ".log"));
        return HOST + ":" + port;
    }

    private static void awaitPort(Process process, int port, Path log) throws Exception {
        long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
        while (true) {
            try (Socket socket = new Socket()) {
                socket.connect(new InetSocketAddress(HOST, port), 1000);
                return;
            } catch (IOException notYet) {
                assertTrue(process.isAlive() && System.nanoTime() < end, Files.readString(log));
                Thread.sleep(20);
            }
        }
    }

    private int tomcat() throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(folder.toString());
        tomcat.setPort(0);
        tomcat.setHostname("127.0.0.1");
        tomcat.getConnector().setAllowTrace(true);
        var context = tomcat.addContext("", null);
        Tomcat.addServlet(context, "echo", new HttpServlet() {
            private static final long serialVersionUID = 1L;

            @Override
            protected void service(HttpServletRequest asked, HttpServletResponse answer)
                    throws IOException {
                String query = asked.getQueryString();
                answer.getWriter().write(asked.getMethod() + " " + asked.getRequestURI()
                        + (query == null ? "" : "?" + query));
            }
        });
        context.addServletMappingDecoded("/*", "echo");
        tomcat.start();
        closedLater(() -> {
            tomcat.stop();
            tomcat.destroy();
        });
        return tomcat.getConnector().getLocalPort();
    }

    /** Checks that the recording origin received what the gateway meant to send. */
    private void compare(String address) throws IOException {
        Carrier meant = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n");
        Carrier understood = start("[origins.o]\naddresses = [\"" + address + "\"]\n");
        int compared = 0;
        for (CorpusContract.Case one : CorpusContract.cases()) {
            origin.seen.clear();
            RawClient.Answer ours = ask(meant, one);
            RawClient.Answer theirs = ask(understood, one);
            assertFalse(theirs.body().contains("smuggled"), one.name() + ": " + theirs);
            if (ours.status() == 200 && theirs.status() == 200 && !ours.body().isEmpty()) {
                String line = origin.seen.get(0).line();
                assertEquals(line.substring(0, line.lastIndexOf(' ')), theirs.body(), one.name());
                compared++;
            } else if (ours.status() != 200 && theirs.status() == 200) {
                // It answered before the body turned out to be none; the head was what it was.
                String asked = one.bytes().substring(0, one.bytes().indexOf(" HTTP/"));
                assertTrue(one.bytes().toLowerCase(java.util.Locale.ROOT).contains("chunked"),
                        one.name());
                assertEquals(asked, theirs.body(), one.name());
            }
        }
        assertTrue(compared > 10, "only " + compared + " cases could be compared");
    }

    /** The answer to the case; the one behind it must be its own. */
    private RawClient.Answer ask(Carrier gateway, CorpusContract.Case one) throws IOException {
        try (RawClient client = gateway.client()) {
            client.sendTolerant(one.bytes() + BEHIND, Integer.MAX_VALUE / 2);
            RawClient.Answer first = client.read(one.bytes().startsWith("HEAD "));
            RawClient.Answer second = client.read();
            List<String> own = List.of("GET /behind", "GET /behind HTTP/1.1|");
            boolean isOwn = second.status() != 200 || own.contains(second.body());
            assertTrue(isOwn, one.name() + ", behind it: " + second);
            return first;
        }
    }

    @Test
    void nginx_understands_what_was_meant() throws Exception {
        compare(program(NGINX, "nginx.conf", "/usr/sbin/nginx", "-e", "stderr", "-p",
                folder.toString(), "-c"));
    }

    @Test
    void haproxy_understands_what_was_meant() throws Exception {
        compare(program(HAPROXY, "haproxy.cfg", "/usr/sbin/haproxy", "-db", "-f"));
    }

    @Test
    void tomcat_understands_what_was_meant() throws Exception {
        compare("127.0.0.1:" + tomcat());
    }
}
