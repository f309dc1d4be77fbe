// The smallest Zuul 2 that forwards: one inbound filter that routes everything to one origin.
package wirespeed.peers;

import com.netflix.appinfo.ApplicationInfoManager;
import com.netflix.appinfo.InstanceInfo;
import com.netflix.config.ConfigurationManager;
import com.netflix.loadbalancer.ConfigurationBasedServerList;
import com.netflix.loadbalancer.Server;
import com.netflix.netty.common.accesslog.AccessLogPublisher;
import com.netflix.netty.common.channel.config.ChannelConfig;
import com.netflix.netty.common.channel.config.CommonChannelConfigKeys;
import com.netflix.netty.common.metrics.EventLoopGroupMetrics;
import com.netflix.netty.common.proxyprotocol.StripUntrustedProxyHeadersHandler.AllowWhen;
import com.netflix.netty.common.status.ServerStatusManager;
import com.netflix.niws.loadbalancer.DiscoveryEnabledServer;
import com.netflix.spectator.api.DefaultRegistry;
import com.netflix.spectator.api.Registry;
import com.netflix.zuul.BasicRequestCompleteHandler;
import com.netflix.zuul.DefaultFilterFactory;
import com.netflix.zuul.Filter;
import com.netflix.zuul.StaticFilterLoader;
import com.netflix.zuul.context.SessionContext;
import com.netflix.zuul.context.ZuulSessionContextDecorator;
import com.netflix.zuul.filters.FilterType;
import com.netflix.zuul.filters.endpoint.ProxyEndpoint;
import com.netflix.zuul.filters.http.HttpInboundSyncFilter;
import com.netflix.zuul.filters.http.HttpOutboundSyncFilter;
import com.netflix.zuul.message.http.HttpRequestMessage;
import com.netflix.zuul.message.http.HttpResponseMessage;
import com.netflix.zuul.netty.server.BaseServerStartup;
import com.netflix.zuul.netty.server.DefaultEventLoopConfig;
import com.netflix.zuul.netty.server.DirectMemoryMonitor;
import com.netflix.zuul.netty.server.NamedSocketAddress;
import com.netflix.zuul.netty.server.ZuulServerChannelInitializer;
import com.netflix.zuul.origins.BasicNettyOriginManager;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.group.ChannelGroup;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.commons.configuration.AbstractConfiguration;

/** {@code Zuul2 PORT ORIGIN_PORT}: listens on all addresses, forwards to 127.0.0.1. */
public final class Zuul2 extends BaseServerStartup {

    private static final String ORIGIN = "wirespeed";
    private final int port;

    private Zuul2(int port, Registry registry, ApplicationInfoManager instance) {
        super(new StatusKeptHere(), new StaticFilterLoader(new DefaultFilterFactory(), Set.of(Route.class, Nothing.class)),
                new ZuulSessionContextDecorator(new BasicNettyOriginManager(registry)),
                (filter, status) -> { }, new BasicRequestCompleteHandler(), registry,
                new DirectMemoryMonitor(registry), new EventLoopGroupMetrics(registry),
                new DefaultEventLoopConfig(), null, instance,
                new AccessLogPublisher("ACCESS", (channel, request) -> ""));
        this.port = port;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 2) {
            System.err.println("usage: Zuul2 PORT ORIGIN_PORT");
            System.exit(2);
        }
        configure(ConfigurationManager.getConfigInstance(), Integer.parseInt(arguments[1]));
        Zuul2 startup = new Zuul2(Integer.parseInt(arguments[0]), new DefaultRegistry(),
                new ApplicationInfoManager(null, null, null));
        startup.init();
        startup.server().start();
        startup.server().awaitTermination();
    }

    /** The origin, one loop, and pools that hold 2000 busy connections: its defaults would refuse them. */
    private static void configure(AbstractConfiguration settings, int originPort) {
        settings.setProperty("zuul.server.netty.threads.worker", 1);
        settings.setProperty(ORIGIN + ".ribbon.listOfServers", "127.0.0.1:" + originPort);
        settings.setProperty(ORIGIN + ".ribbon.NIWSServerListClassName",
                OneAddress.class.getName());
        settings.setProperty(ORIGIN + ".ribbon.MaxConnectionsPerHost", -1);
        settings.setProperty(ORIGIN + ".ribbon.ReadTimeout", 60_000);
        settings.setProperty(ORIGIN + ".netty.client.perServerWaterline", 4096);
        settings.setProperty(ORIGIN + ".netty.client.maxRequestsPerConnection", 10_000_000);
        settings.setProperty("zuul.origin." + ORIGIN + ".concurrency.protect.enabled", false);
        settings.setProperty("server.http.maxRequestsPerConnection", 10_000_000);
        settings.setProperty("server.http.maxRequestsPerConnection.inBrownout", 10_000_000);
        settings.setProperty("eureka.shouldFetchRegistry", false);
        settings.setProperty("eureka.registration.enabled", false);
    }

    @Override
    protected Map<NamedSocketAddress, ChannelInitializer<?>> chooseAddrsAndChannels(ChannelGroup clients) {
        ChannelConfig config = defaultChannelConfig("main");
        config.set(CommonChannelConfigKeys.allowProxyHeadersWhen, AllowWhen.ALWAYS);
        config.set(CommonChannelConfigKeys.preferProxyProtocolForClientIp, false);
        config.set(CommonChannelConfigKeys.isSSlFromIntermediary, false);
        config.set(CommonChannelConfigKeys.withProxyProtocol, false);
        config.set(CommonChannelConfigKeys.maxRequestsPerConnection, 10_000_000);
        NamedSocketAddress address = new NamedSocketAddress("http", new InetSocketAddress("127.0.0.1", port));
        return Map.of(address, new ZuulServerChannelInitializer(
                String.valueOf(port), config, defaultChannelDependencies("main"), clients));
    }

    /** Routes every request to the origin. */
    @Filter(order = 0, type = FilterType.INBOUND)
    public static final class Route extends HttpInboundSyncFilter {
        @Override
        public int filterOrder() {
            return 0;
        }

        @Override
        public boolean shouldFilter(HttpRequestMessage request) {
            return true;
        }

        @Override
        public HttpRequestMessage apply(HttpRequestMessage request) {
            SessionContext context = request.getContext();
            context.setEndpoint(ProxyEndpoint.class.getCanonicalName());
            context.setRouteVIP(ORIGIN);
            return request;
        }
    }

    /** The configured address as an instance of a registry: Zuul 2 balances over nothing else. */
    public static final class OneAddress extends ConfigurationBasedServerList {
        @Override
        protected List<Server> derive(String address) {
            int colon = address.lastIndexOf(':');
            String host = address.substring(0, colon);
            InstanceInfo info = InstanceInfo.Builder.newBuilder().setInstanceId(address).setAppName(ORIGIN)
                    .setHostName(host).setIPAddr(host)
                    .setPort(Integer.parseInt(address.substring(colon + 1))).build();
            return List.of(new DiscoveryEnabledServer(info, false, true));
        }
    }

    /** Zuul 2 requires a filter for responses; this one declines. */
    @Filter(order = 0, type = FilterType.OUTBOUND)
    public static final class Nothing extends HttpOutboundSyncFilter {
        @Override
        public int filterOrder() {
            return 0;
        }

        @Override
        public boolean shouldFilter(HttpResponseMessage response) {
            return false;
        }

        @Override
        public HttpResponseMessage apply(HttpResponseMessage response) {
            return response;
        }
    }

    /** Without a registry of services the status has no receiver. */
    private static final class StatusKeptHere extends ServerStatusManager {
        StatusKeptHere() {
            super(null);
        }

        @Override
        public void localStatus(InstanceInfo.InstanceStatus status) {
            // Nothing listens for it here.
        }
    }
}
