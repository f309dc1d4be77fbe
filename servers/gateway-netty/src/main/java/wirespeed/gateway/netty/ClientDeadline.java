// The one deadline of a client's connection or stream, and of the exchange on it.
package wirespeed.gateway.netty;

import wirespeed.gateway.core.Attempts;

/** A wheel's entry, so that what a connection touches when it is armed is one object. */
final class ClientDeadline extends Wheel.Entry {
    private final Loop loop;
    private final Runnable passed;
    /** Of the whole exchange, whatever route its filters choose later. */
    private int exchangeMillis;
    private long exchangeEndMillis;
    private long waitingMillis;

    /**
     * Not armed yet.
     *
     * @param passed called when it has passed
     */
    ClientDeadline(Loop loop, Runnable passed) {
        this.loop = loop;
        this.passed = passed;
    }

    @Override
    void onTimeout(long nowMillis) {
        passed.run();
    }

    void within(int millis) {
        loop.wheel.arm(this, loop.nowMillis() + millis);
    }

    /** As {@link #within}; the whole exchange has a bound, however often its parts get new time. */
    void withinExchange(int millis) {
        loop.wheel.arm(this, Math.min(loop.nowMillis() + millis, exchangeEndMillis));
    }

    /** Nothing but the whole exchange is bounded. */
    void atExchangeEnd() {
        loop.wheel.arm(this, exchangeEndMillis);
    }

    void none() {
        loop.wheel.remove(this);
    }

    void exchangeBegins() {
        exchangeMillis = loop.timeouts.exchangeMillis();
        exchangeEndMillis = loop.nowMillis() + exchangeMillis;
    }

    /** The exchange that has begun takes at most this long, and not what timeouts.exchange says. */
    void exchangeWithin(int millis) {
        exchangeEndMillis += millis - exchangeMillis;
        exchangeMillis = millis;
    }

    boolean hasFairTime() {
        return Attempts.hadTime(exchangeEndMillis - loop.nowMillis(), exchangeMillis);
    }

    boolean isExchangeOver() {
        return loop.nowMillis() >= exchangeEndMillis;
    }

    /** From now on the client has to take or send something. */
    void waits() {
        waitingMillis = loop.nowMillis();
    }

    /** Whether the client has been waited for since this time or longer. */
    boolean waitsSince(long sinceMillis) {
        return waitingMillis <= sinceMillis;
    }
}
