// A part of a client that can be asked to end: by the drain, and when memory is short.
package wirespeed.gateway.netty;

/** Called on its loop. */
interface Drainable {
    /** For the first request of a connection that was accepted just before the process stops. */
    int FIRST_MILLIS = 1000;

    /** The process stops: nothing new is taken, and the connection closes when it is unused. */
    void drain();

    /** Whether the socket has taken all that was answered. */
    boolean isWritten();

    /**
     * Memory is short.
     *
     * @return whether a peer that had taken or sent nothing since before then was cut
     */
    boolean relieve(long sinceMillis);
}
