// The time-outs of a carrier, read once from the options.
package wirespeed.gateway.netty;

import wirespeed.gateway.core.OptionValues;

/** All in milliseconds; see the options page for what each one bounds. */
record Timeouts(int headMillis, int bodyIdleMillis, int keepAliveMillis, int exchangeMillis,
        int sendMillis, int poolIdleMillis, int poolWaitMillis, long bodyBytesPerSecond) {
    static Timeouts of(OptionValues values) {
        return new Timeouts(values.millis("head"), values.millis("body-idle"),
                values.millis("keep-alive"), values.millis("exchange"),
                values.millis("send"), values.millis("pool-idle"), values.millis("pool-wait"),
                values.bytes("body-rate"));
    }
}
