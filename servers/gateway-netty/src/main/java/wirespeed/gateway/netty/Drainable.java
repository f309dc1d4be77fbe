// A connection of a client, as the drain sees it.
package wirespeed.gateway.netty;

/** Called on its loop. */
interface Drainable {
    /** The process stops: nothing new is taken, and the connection closes when it is unused. */
    void drain();

    /** Whether the socket has taken all that was answered. */
    boolean isWritten();
}
