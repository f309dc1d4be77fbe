// FeatureContract on gateway-tomcat with platform threads.
package wirespeed.gateway.contract;

import java.util.Map;
import org.junit.jupiter.api.Disabled;
import wirespeed.gateway.runtime.Launcher;
import wirespeed.gateway.tomcat.Main;

class TomcatFeatureTest extends FeatureContract {
    @Override
    Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    Map<String, Object> options() {
        return Map.of("tomcat.threads", "platform", "tomcat.max-keep-alive-requests", "-1");
    }

    @Override
    @Disabled("Tomcat closes a connection after a 503, on which this story goes on")
    void the_admin_port_shows_and_changes() {
    }

    @Override
    @Disabled("Tomcat closes a connection after a 503, on which this story goes on")
    void active_checks_take_an_address_out_and_bring_it_back() {
    }
}
