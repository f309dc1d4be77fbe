/** Chooses the response to a request. */
package wirespeed.httpserver;

import io.netty.buffer.ByteBuf;
import java.io.IOException;

/** From a head to a response; one instance per loop. */
final class Responder {
    private final Loop loop;
    private final boolean hasValidators;
    private final boolean isRegionSupported;

    Responder(Loop loop, Settings settings) {
        this.loop = loop;
        hasValidators = settings.validators();
        isRegionSupported = settings.transport() != Transport.IO_URING;
    }

    /** Responds to a request whose head was just read from these bytes. */
    void answer(Connection connection, byte[] bytes, RequestHead head) {
        boolean hasBody = head.isChunked || head.bodyBytes > 0;
        // A client that expects 100 may or may not send the body after another status (RFC 9110
        // §10.1.1).
        boolean isSkipped = hasBody && !head.isContinueExpected
                && head.bodyBytes <= BodySkipper.BODY_BYTES_MAX;
        if (isSkipped) {
            connection.skip(head.isChunked ? BodySkipper.chunked()
                    : BodySkipper.ofLength(head.bodyBytes));
        }
        boolean isKept = head.isKeepAlive && !loop.isStopping && hasBody == isSkipped
                && head.method != Method.CONNECT;
        if (!isKept) {
            // A client that did not ask to close may have sent its next request already.
            connection.end(hasBody || head.isKeepAlive);
        }
        Responses.Ending ending = !isKept ? Responses.Ending.CLOSE
                : head.minorVersion == 1 ? Responses.Ending.KEEP : Responses.Ending.KEEP_OLD;
        if (head.method == Method.GET || head.method == Method.HEAD) {
            resource(connection, bytes, head, ending);
        } else {
            status(connection, head.method == Method.OTHER ? Status.NOT_IMPLEMENTED
                    : Status.METHOD_NOT_ALLOWED, head, ending);
        }
    }

    private void resource(Connection connection, byte[] bytes, RequestHead head,
                          Responses.Ending ending) {
        try {
            Resource found = loop.content.find(bytes, head.targetFrom, head.targetTo, loop.nowS);
            if (hasValidators) {
                conditional(connection, found, head, ending);
            } else {
                whole(connection, found, head, ending);
            }
        } catch (Content.Refusal refusal) {
            status(connection, refusal.status, head, ending);
        } catch (IOException unreadable) {
            status(connection, Status.NOT_FOUND, head, ending);
        }
    }

    private void whole(Connection connection, Resource found, RequestHead head,
                       Responses.Ending ending) throws IOException {
        boolean isGet = head.method == Method.GET;
        boolean isCopied = isGet && found.bytes() <= Connection.COMPOSED_BYTES_MAX
                && found.isInMemory();
        FileSender sender = isGet && !found.isInMemory()
                ? FileSender.open(found.file(), 0, found.bytes(), isRegionSupported) : null;
        int copied = isCopied ? (int) found.bytes() : 0;
        ByteBuf out = connection.room(Responses.HEAD_BYTES_MAX + copied);
        loop.responses.ok(out, found.bytes(), ending);
        if (isCopied) {
            out.writeBytes(found.body(), 0, copied);
        } else if (sender != null) {
            connection.send(sender);
        } else if (isGet) {
            connection.send(found.body());
        }
    }

    private void conditional(Connection connection, Resource found, RequestHead head,
                             Responses.Ending ending) throws IOException {
        Validators.Answer answer = Validators.answer(found, head);
        boolean hasBody = head.method == Method.GET && answer.bytes() > 0;
        FileSender sender = hasBody && !found.isInMemory() ? FileSender.open(found.file(),
                answer.from(), answer.bytes(), isRegionSupported) : null;
        int copied = hasBody && found.isInMemory() ? (int) answer.bytes() : 0;
        ByteBuf out = connection.room(Responses.HEAD_BYTES_MAX + copied);
        loop.responses.head(out, answer.status(), answer.fields(), answer.bytes(), ending);
        if (sender != null) {
            connection.send(sender);
        } else if (copied > 0) {
            out.writeBytes(found.body(), (int) answer.from(), copied);
        }
    }

    private void status(Connection connection, Status status, RequestHead head,
                        Responses.Ending ending) {
        ByteBuf out = connection.room(Responses.HEAD_BYTES_MAX);
        loop.responses.status(out, status, head.method != Method.HEAD, ending);
    }
}
