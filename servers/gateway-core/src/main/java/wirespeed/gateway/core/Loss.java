// How far an attempt had come when it was lost.
package wirespeed.gateway.core;

/** Says whether the origin may have acted on the request. */
public enum Loss {
    /** The origin says that it has not looked at it, or never got it (RFC 9113 §8.7). */
    UNPROCESSED,
    /** On a connection that was used before, at once and without a byte of an answer: likely its end. */
    STALE,
    /** The address had not all of the request in time, or hardly any time left: speaks against none. */
    UNFINISHED,
    /** Without a byte of an answer. */
    BEFORE_ANSWER,
    AFTER_ANSWER
}
