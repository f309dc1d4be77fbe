// ShippedContract on gateway-netty.
package wirespeed.gateway.contract;

import java.util.Map;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

class NettyShippedTest extends ShippedContract {
    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "1");
    }
}
