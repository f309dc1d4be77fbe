// ShippedContract on gateway-tomcat with platform threads.
package wirespeed.gateway.contract;

import java.util.Map;
import wirespeed.gateway.runtime.Launcher;
import wirespeed.gateway.tomcat.Main;

class TomcatShippedTest extends ShippedContract {
    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("tomcat.threads", "platform", "tomcat.max-keep-alive-requests", "-1");
    }
}
