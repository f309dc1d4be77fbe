// EndContract on gateway-netty.
package wirespeed.gateway.contract;

import java.util.Map;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

class NettyEndTest extends EndContract {
    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "2");
    }

    @Override
    boolean endsTunnelsOfTls() {
        return true;
    }
}
