// A filter that also wants to know how an exchange ended.
package wirespeed.gateway.core;

/** For logs; called once, after the last byte or the failure. */
public interface FinishFilter extends Filter {
    /**
     * The exchange is over.
     *
     * @param status what the client got; 0 when no head was sent
     * @param nanos from the request head to the end
     */
    void finished(Context context, int status, long nanos);
}
