// The suite on gateway-tomcat with virtual threads: a program, because they need a newer Java.
package wirespeed.gateway.contract;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;
import wirespeed.gateway.runtime.Launcher;
import wirespeed.gateway.tomcat.Main;

/**
 * Ends with 0 when every test passed; each one that did not is a line on standard output. With the
 * argument {@code whole} slow clients, features and corpus are run, too, which takes minutes on a busy machine.
 */
final class OnVirtualThreads {
    private static final Map<String, Object> OPTIONS = Map.of("tomcat.threads", "virtual",
            "tomcat.max-keep-alive-requests", "-1");

    private OnVirtualThreads() {
    }

    public static void main(String[] arguments) {
        Stream<Class<?>> suites = List.of(arguments).contains("whole")
                ? Stream.of(Exchanges.class, WebSockets.class, Slow.class, Features.class,
                        Corpus.class)
                : Stream.of(Exchanges.class, WebSockets.class);
        SummaryGeneratingListener heard = new SummaryGeneratingListener();
        LauncherFactory.create().execute(LauncherDiscoveryRequestBuilder.request().selectors(
                suites.map(suite -> selectClass(suite)).toList()).build(), heard);
        heard.getSummary().getFailures().forEach(failure -> System.out.println(
                failure.getTestIdentifier().getDisplayName() + ": " + failure.getException()));
        long passed = heard.getSummary().getTestsSucceededCount();
        System.out.println(passed + " passed");
        System.exit(heard.getSummary().getTotalFailureCount() == 0 && passed > 0 ? 0 : 1);
    }

    interface VirtualThreads extends CarrierChoice {
        @Override
        default Launcher.Factory factory() {
            return Main::carrier;
        }

        @Override
        default Map<String, Object> options() {
            return OPTIONS;
        }
    }

    static final class Exchanges extends GatewayContract implements VirtualThreads {
    }

    static final class Features extends FeatureContract implements VirtualThreads {
    }

    static final class WebSockets extends WebSocketContract implements VirtualThreads {
    }

    static final class Slow extends SlowContract implements VirtualThreads {
    }

    static final class Corpus extends CorpusContract implements VirtualThreads {
    }
}
