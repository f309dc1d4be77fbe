// Configures Tomcat, listens, and stops in order.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.catalina.Context;
import org.apache.catalina.LifecycleException;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.core.StandardContext;
import org.apache.catalina.core.StandardHost;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.net.SSLHostConfig;
import wirespeed.gateway.core.ChunkFrames;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.runtime.Launcher;

/** One connector, one host, one context, one servlet. */
public final class Server implements Launcher.Carrier {
    /** The first Java with virtual threads. */
    private static final int VIRTUAL_SINCE = 21;
    private static final int SWALLOWED_BYTES_MAX = 64 * 1024;
    /** Kept, because the platform forgets levels of loggers that nobody holds. */
    private static final Logger TOMCAT = Logger.getLogger("org.apache");

    private final Gateway gateway;
    private final OptionValues options;
    private final boolean isVirtual;
    private final Plant plant;
    private final Http11 http;
    private final Tomcat tomcat = new Tomcat();
    private final AtomicBoolean isStopped = new AtomicBoolean();
    private Path folder;

    /** Prepares everything; nothing listens yet. */
    public Server(Gateway gateway) {
        this.gateway = gateway;
        options = gateway.options("tomcat");
        isVirtual = options.text("threads").equals("virtual");
        int version = Runtime.version().feature();
        if (isVirtual && version < VIRTUAL_SINCE) {
            throw new IllegalArgumentException("tomcat.threads = \"virtual\" needs Java "
                    + VIRTUAL_SINCE + " or newer; this is Java " + version);
        }
        plant = Plant.of(gateway);
        http = new Http11(plant.meters(), new StrictChannel.Factory(
                () -> gateway.snapshot().limits(), gateway.options("timeouts").millis("head"),
                gateway.options("timeouts").millis("send")));
    }

    @Override
    public InetSocketAddress start() {
        TOMCAT.setLevel(Level.WARNING);
        try {
            folder = Files.createTempDirectory("gateway-tomcat");
            Address wanted = Address.parse(gateway.options("server").text("listen"));
            InetAddress host = InetAddress.getByName(wanted.host());
            configure(host, wanted.port());
            tomcat.setBaseDir(folder.toString());
            container();
            tomcat.start();
            return new InetSocketAddress(host, http.getLocalPort());
        } catch (UnknownHostException e) {
            throw new IllegalArgumentException("server.listen: no host " + e.getMessage(), e);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (LifecycleException e) {
            throw new IllegalStateException(rootMessage(e), e);
        }
    }

    private static String rootMessage(Throwable failed) {
        Throwable cause = failed;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause.getMessage();
    }

    private void configure(InetAddress host, int port) {
        Timeouts timeouts = plant.timeouts();
        OptionValues limits = gateway.options("limits");
        http.setAddress(host);
        http.setPort(port);
        // The socket is opened by start, so that it can be closed alone when draining.
        http.setProperty("bindOnInit", "false");
        http.setMaxThreads(options.count("max-threads"));
        http.setMaxConnections(options.count("max-connections"));
        http.setAcceptCount(options.count("accept-count"));
        http.setMaxKeepAliveRequests(options.count("max-keep-alive-requests"));
        http.setConnectionTimeout(timeouts.connectionMillis());
        http.setKeepAliveTimeout(timeouts.keepAliveMillis());
        http.setDisableUploadTimeout(false);
        http.setConnectionUploadTimeout(timeouts.bodyIdleMillis());
        http.setTcpNoDelay(true);
        http.setUseKeepAliveResponseHeader(false);
        http.setContinueResponseTiming("onRead");
        // The strict reader refuses first.
        http.setMaxHttpRequestHeaderSize((int) limits.bytes("head") + 1024);
        http.setMaxHttpResponseHeaderSize((int) limits.bytes("response-head") + 4096);
        http.setMaxHeaderCount(limits.count("fields") + 1);
        http.setMaxTrailerSize(2 * ChunkFrames.TRAILER_BYTES_MAX);
        http.setMaxSwallowSize(SWALLOWED_BYTES_MAX);
        // What the gateway's own rules allow in a target.
        http.setRelaxedPathChars("\"<>[]^`{|}");
        http.setRelaxedQueryChars("\"<>[]^`{|}");
        if (isVirtual) {
            http.setProperty("useVirtualThreads", "true");
        }
    }

    private void container() {
        Connector connector = new Connector(http);
        connector.setAllowTrace(true);
        // Paths are decoded by gateway-core; here every byte must be acceptable.
        connector.setURIEncoding("ISO-8859-1");
        connector.setXpoweredBy(false);
        // A port in use is an error of this start and not a line in a log.
        connector.setThrowOnFailure(true);
        List<SSLHostConfig> tls = Tls.forClients(gateway.options("tls"));
        if (!tls.isEmpty()) {
            connector.setScheme("https");
            connector.setSecure(true);
            connector.setProperty("SSLEnabled", "true");
            // Hosts are the routes' business, and all certificates ask the same of clients.
            connector.setProperty("strictSni", "false");
            tls.forEach(connector::addSslHostConfig);
            // Connections that stand keep what they agreed on.
            gateway.certificates(() -> Tls.forClients(gateway.options("tls"))
                    .forEach(one -> http.addSslHostConfig(one, true)));
        }
        tomcat.setConnector(connector);
        ((StandardHost) tomcat.getHost()).setErrorReportValveClass(PlainErrors.class.getName());
        Context context = tomcat.addContext("", null);
        context.setCookies(false);
        quickStop((StandardContext) context);
        context.addServletContainerInitializer((classes, servlets) ->
                servlets.setSessionTrackingModes(Set.of()), Set.of());
        context.getPipeline().addValve(new InsideValve());
        Tomcat.addServlet(context, "gateway", new GatewayServlet(plant,
                isVirtual ? options.count("max-threads") : 0));
        context.addServletMappingDecoded("/*", "gateway");
    }

    /** The process ends after it: there is nothing to unload and no leak to look for. */
    private static void quickStop(StandardContext context) {
        context.setUnloadDelay(100);
        context.setClearReferencesRmiTargets(false);
        context.setClearReferencesThreadLocals(false);
        context.setRenewThreadsWhenStoppingContext(false);
    }

    @Override
    public String describe() {
        return "tomcat nio, " + (isVirtual ? "virtual threads" : "platform threads") + ", at most "
                + options.count("max-threads");
    }

    /** Closes the listener, lets exchanges end for up to {@code drainMillis}, then cuts the rest. */
    @Override
    public int stop(long drainMillis) {
        if (!isStopped.compareAndSet(false, true)) {
            return 0;
        }
        gateway.drain();
        http.closeServerSocketGraceful();
        long end = System.nanoTime() + drainMillis * 1_000_000;
        http.closeIdle();
        while (gateway.inFlight().get() > 0 && System.nanoTime() < end) {
            LockSupport.parkNanos(10_000_000);
            http.closeIdle();
        }
        int cut = gateway.inFlight().get();
        try {
            tomcat.stop();
            tomcat.destroy();
        } catch (LifecycleException e) {
            throw new IllegalStateException(rootMessage(e), e);
        } finally {
            plant.pool().close();
            delete(folder);
        }
        return cut;
    }

    /** Tomcat wants a folder for work files and puts nothing but empty ones into it. */
    private static void delete(Path root) {
        if (root == null) {
            return;
        }
        try (var paths = Files.walk(root)) {
            for (Path path : paths.sorted(java.util.Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(path);
            }
        } catch (IOException left) {
            Logger.getLogger("wirespeed.gateway").log(Level.INFO, "left behind: " + root, left);
        }
    }
}
