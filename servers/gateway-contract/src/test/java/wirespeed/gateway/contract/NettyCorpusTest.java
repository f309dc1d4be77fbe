// The corpus on gateway-netty; reading does not depend on the transport.
package wirespeed.gateway.contract;

import java.util.Map;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

class NettyCorpusTest extends CorpusContract {
    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "nio", "server.threads", "1");
    }
}
