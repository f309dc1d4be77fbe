// CorpusContract on gateway-tomcat with platform threads.
package wirespeed.gateway.contract;

import java.io.IOException;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import wirespeed.gateway.runtime.Launcher;
import wirespeed.gateway.tomcat.Main;

class TomcatCorpusTest extends CorpusContract {
    @Override
    Launcher.Factory factory() {
        return Main::carrier;
    }

    /** Tomcat refuses an absolute target that differs from Host before we see it. */
    @Override
    @TestFactory
    Stream<DynamicTest> corpus() throws IOException {
        return super.corpus().filter(one -> !one.getDisplayName().equals("absolute-form.case"));
    }

    /** Tomcat reads first; its answers are listed in docs/limits/gateway-tomcat.md. */
    @Override
    boolean isExact() {
        return false;
    }

    @Override
    Map<String, Object> options() {
        return Map.of("tomcat.threads", "platform");
    }
}
