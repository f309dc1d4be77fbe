// The client's side of an exchange, whatever protocol version it speaks.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Response;

/** Called on the exchange's loop only. */
interface Client {
    /** Sends the response head of the exchange; the body follows with this framing. */
    void sendHead(Exchange exchange, Framing framing);

    /** Sends a piece of the body; takes it over. */
    void sendBody(ByteBuf slice);

    /**
     * The response is complete.
     *
     * @param trailers that follow its body, if this client can have them; null for none
     */
    void sendEnd(Headers trailers);

    /** The head was sent and the rest will not come: the client must not take it for complete. */
    void cut();

    /** Asks the client to send the body it announced. */
    void sendContinue();

    /** An interim response of the origin, such as 103; the final one follows. */
    void sendInterim(Response response);

    /** Hands what was written to the socket. */
    void flush();

    boolean isWritable();

    /** The response waits for the client to take what is written; not for ever. */
    void stalled();

    /** Stops or resumes reading the request body. */
    void readBody(boolean isOn);

    /** The head of a response that switches protocols; raw bytes follow both ways. */
    void sendSwitch(Response response, String protocol);

    /** The whole exchange takes at most this long, and not what timeouts.exchange says. */
    void exchangeWithin(int millis);

    /** Whether so much of that time is left that its end speaks against who is waited for. */
    boolean hasFairTime();

    /** How a body with this framing of the origin's is sent to this client. */
    Framing clientFraming(Framing fromOrigin);
}
