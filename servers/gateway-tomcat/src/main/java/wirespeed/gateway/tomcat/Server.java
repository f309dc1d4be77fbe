// Configures Tomcat, listens, and stops in order.
package wirespeed.gateway.tomcat;

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.catalina.LifecycleException;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.core.StandardContext;
import org.apache.catalina.core.StandardHost;
import org.apache.catalina.startup.Tomcat;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.Listener;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.runtime.Launcher;

/** A connector for each listener, one host, one context, one servlet. */
public final class Server implements Launcher.Carrier {
    /** The first Java with virtual threads. */
    private static final int VIRTUAL_SINCE = 21;
    private static final int SWALLOWED_BYTES_MAX = 64 * 1024;
    /** For the first request of a connection that was accepted just before the process stops. */
    private static final long FIRST_NANOS = 1_000_000_000;
    /** Kept, because the platform forgets levels of loggers without a reference. */
    private static final Logger TOMCAT = Logger.getLogger("org.apache");

    private final Gateway gateway;
    private final OptionValues options;
    private final boolean isVirtual;
    private final Plant plant;
    /** One for each listener of the gateway, in its order. */
    private final List<Http11> protocols = new ArrayList<>();
    private final Lingering lingering = new Lingering();
    private final Tomcat tomcat = new Tomcat();
    private final AtomicBoolean isStopped = new AtomicBoolean();

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
        StrictChannel.Factory channels = new StrictChannel.Factory(
                () -> gateway.snapshot().limits(), gateway.options("timeouts").millis("head"),
                gateway.options("timeouts").millis("send"), lingering, plant.meters());
        gateway.listeners().forEach(one -> protocols.add(new Http11(one, plant.meters(), channels)));
    }

    @Override
    public List<InetSocketAddress> start() {
        TOMCAT.setLevel(Level.WARNING);
        // It has to be there, and nothing is written into it.
        tomcat.setBaseDir(System.getProperty("java.io.tmpdir"));
        List<InetSocketAddress> bound = new ArrayList<>();
        ShownCertificates certificates = new ShownCertificates(gateway.options("tls"));
        try {
            for (int i = 0; i < protocols.size(); i++) {
                bound.add(open(protocols.get(i), gateway.listeners().get(i), certificates));
            }
            protocols.get(0).shareThreads(protocols.subList(1, protocols.size()));
            container();
            tomcat.start();
            return bound;
        } catch (LifecycleException e) {
            protocols.forEach(Http11::unbind);
            throw new IllegalStateException(rootMessage(e), e);
        } catch (RuntimeException refused) {
            protocols.forEach(Http11::unbind);
            throw refused;
        }
    }

    /** Takes the address, and accepts nothing yet. */
    private InetSocketAddress open(Http11 http, Listener listener, ShownCertificates certificates) {
        InetSocketAddress wanted = listener.toBind();
        configure(http, wanted);
        tomcat.setConnector(connector(http, listener.isTls(), certificates));
        try {
            http.bind();
        } catch (RuntimeException refused) {
            throw refused;
        } catch (Exception broken) {
            throw new IllegalStateException(rootMessage(broken), broken);
        }
        return new InetSocketAddress(wanted.getAddress(), http.getLocalPort());
    }

    private static String rootMessage(Throwable failed) {
        Throwable cause = failed;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause.getMessage();
    }

    private void configure(Http11 http, InetSocketAddress address) {
        Timeouts timeouts = plant.timeouts();
        OptionValues limits = gateway.options("limits");
        http.setAddress(address.getAddress());
        http.setPort(address.getPort());
        // Otherwise the socket could not be closed alone when draining.
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
        http.setMaxHttpResponseHeaderSize((int) limits.bytes("response-head") + 4096);
        http.setMaxSwallowSize(SWALLOWED_BYTES_MAX);
        if (isVirtual) {
            http.setProperty("useVirtualThreads", "true");
        }
    }

    private Connector connector(Http11 http, boolean isTls, ShownCertificates certificates) {
        Connector connector = new Connector(http);
        connector.setAllowTrace(true);
        connector.setXpoweredBy(false);
        // A port in use is an error of this start and not a line in a log.
        connector.setThrowOnFailure(true);
        if (isTls) {
            connector.setScheme("https");
            connector.setSecure(true);
            connector.setProperty("SSLEnabled", "true");
            // Hosts are the routes' business, and all certificates ask the same of clients.
            connector.setProperty("strictSni", "false");
            certificates.hosts().forEach(connector::addSslHostConfig);
        }
        return connector;
    }

    /** Connections that stand keep what they agreed on. Read once: all listeners show the same. */
    private void readCertificates() {
        ShownCertificates certificates = new ShownCertificates(gateway.options("tls"));
        for (Http11 http : protocols) {
            if (http.isSSLEnabled()) {
                certificates.hosts().forEach(one -> http.addSslHostConfig(one, true));
            }
        }
    }

    private void container() {
        gateway.certificates(this::readCertificates);
        ((StandardHost) tomcat.getHost()).setErrorReportValveClass(PlainErrors.class.getName());
        StandardContext context = new WithoutFolder();
        context.setName("");
        context.setPath("");
        context.addLifecycleListener(new Tomcat.FixContextListener());
        tomcat.getHost().addChild(context);
        context.setCookies(false);
        quickStop(context);
        context.addServletContainerInitializer((classes, servlets) ->
                servlets.setSessionTrackingModes(Set.of()), Set.of());
        context.getPipeline().addValve(new InsideValve());
        Tomcat.addServlet(context, "gateway", new GatewayServlet(plant,
                isVirtual ? options.count("max-threads") : 0));
        context.addServletMappingDecoded("/*", "gateway");
    }

    /** Tomcat creates a folder for compiled pages and uploads, which the gateway does not have. */
    private static final class WithoutFolder extends StandardContext {
        @Override
        protected void postWorkDirectory() {
            // A process that is killed would leave it behind.
        }
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

    private int closeIdle(boolean isFirstDue) {
        return protocols.stream().mapToInt(http -> http.closeIdle(isFirstDue)).sum();
    }

    /** Takes in who waits, closes the listeners, lets exchanges end for up to {@code drainMillis}, then cuts the rest. */
    @Override
    public int stop(long drainMillis) {
        if (!isStopped.compareAndSet(false, true)) {
            return 0;
        }
        gateway.drain();
        protocols.forEach(Http11::closeListener);
        long begin = System.nanoTime();
        int busy = closeIdle(drainMillis > 0);
        while ((busy > 0 || gateway.inFlight().get() > 0)
                && System.nanoTime() - begin < drainMillis * 1_000_000) {
            LockSupport.parkNanos(10_000_000);
            busy = closeIdle(System.nanoTime() - begin < FIRST_NANOS);
        }
        int cut = gateway.inFlight().get();
        try {
            tomcat.stop();
            tomcat.destroy();
        } catch (LifecycleException e) {
            throw new IllegalStateException(rootMessage(e), e);
        } finally {
            plant.pool().close();
            lingering.close();
        }
        return cut;
    }
}
