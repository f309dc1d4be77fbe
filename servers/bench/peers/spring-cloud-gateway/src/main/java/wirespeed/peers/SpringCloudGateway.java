// The least program around Spring Cloud Gateway: everything goes to one origin.
package wirespeed.peers;

import java.util.Map;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.gateway.route.RouteLocator;
import org.springframework.cloud.gateway.route.builder.RouteLocatorBuilder;
import org.springframework.context.annotation.Bean;

/** Arguments: the port to listen on, the port of the origin. */
@SpringBootApplication
public class SpringCloudGateway {
    private static String origin;

    /** Runs until it is ended. */
    public static void main(String[] arguments) {
        origin = "http://127.0.0.1:" + arguments[1];
        // One loop, as the others have; by default reactor-netty takes four.
        System.setProperty("reactor.netty.ioWorkerCount", "1");
        SpringApplication gateway = new SpringApplication(SpringCloudGateway.class);
        gateway.setDefaultProperties(Map.of(
                "server.address", "127.0.0.1",
                "server.port", arguments[0],
                "spring.cloud.gateway.httpclient.pool.type", "FIXED",
                "spring.cloud.gateway.httpclient.pool.max-connections", "4096",
                "logging.level.root", "WARN"));
        gateway.run();
    }

    @Bean
    RouteLocator routes(RouteLocatorBuilder builder) {
        return builder.routes().route("all", route -> route.path("/**").uri(origin)).build();
    }
}
