// The time-outs and bounds of a carrier, read once from the options.
package wirespeed.gateway.tomcat;

import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.OptionValues;

/** Times in milliseconds; see the options page for what each one bounds. */
record Timeouts(int bodyIdleMillis, int keepAliveMillis, int exchangeMillis, int poolIdleMillis,
        int poolWaitMillis, int connectionMillis, long bodyBytesPerSecond) {
    static Timeouts of(Gateway gateway) {
        OptionValues values = gateway.options("timeouts");
        int connection = gateway.options("tomcat").millis("connection-timeout");
        // The published test set connectionTimeout only, which Tomcat then uses for both.
        int keepAlive = values.isGiven("keep-alive") ? values.millis("keep-alive") : connection;
        return new Timeouts(values.millis("body-idle"), keepAlive, values.millis("exchange"),
                values.millis("pool-idle"), values.millis("pool-wait"), connection,
                values.bytes("body-rate"));
    }
}
