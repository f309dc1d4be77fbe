// What a client gets when the gateway has no answer for it.
package wirespeed.gateway.core;

import java.nio.ByteBuffer;

/** A line of text with a status; a client of gRPC reads that in fields of its own. */
public final class Failure {
    private Failure() {
    }

    /**
     * The response.
     *
     * @param reason what follows the status; empty for nothing
     */
    public static Response of(Request request, int status, String reason) {
        String text = status + " " + StatusLine.reason(status)
                + (reason.isEmpty() ? "" : ": " + reason);
        return isGrpc(request) ? grpc(status, text)
                : Response.of(status, "text/plain; charset=utf-8", text + "\n");
    }

    /** The response to an invalid request, which neither filters nor an origin see. */
    public static Response refused(Refusal refusal) {
        Response response = Response.of(refusal.status(), "text/plain; charset=utf-8", refusal.status() + " "
                + StatusLine.reason(refusal.status()) + ": " + refusal.getMessage() + "\n");
        if (refusal.status() == 405) {
            response.headers().add("Allow", Forwarding.METHODS);
        }
        return response;
    }

    /** A response that asks the client to come back. */
    public static Response retryLater(Request request, int status, String reason) {
        Response response = isGrpc(request) ? grpc(status, reason)
                : Response.of(status, "text/plain; charset=utf-8", reason + "\n");
        response.headers().add("Retry-After", "1");
        return response;
    }

    private static boolean isGrpc(Request request) {
        String type = request.headers().get("Content-Type");
        return type != null && (type.equals("application/grpc") || type.startsWith("application/grpc+")
                || type.startsWith("application/grpc;"));
    }

    /** The statuses of https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md. */
    private static Response grpc(int status, String text) {
        int code = switch (status) {
            case 400 -> 13;
            case 401 -> 16;
            case 403 -> 7;
            case 404 -> 12;
            case 429, 502, 503, 504 -> 14;
            default -> 2;
        };
        Response response = Response.of(200, ByteBuffer.allocate(0));
        response.headers().add("Content-Type", "application/grpc");
        response.headers().add("grpc-status", String.valueOf(code));
        StringBuilder message = new StringBuilder();
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            message.append(c >= ' ' && c <= '~' && c != '%' ? String.valueOf(c) : "?");
        }
        response.headers().add("grpc-message", message.toString());
        return response;
    }
}
