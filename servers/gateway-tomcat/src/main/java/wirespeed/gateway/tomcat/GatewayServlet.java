// The one servlet: every request of every path.
package wirespeed.gateway.tomcat;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.catalina.connector.Request;
import org.apache.catalina.connector.Response;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Failure;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Snapshot;

/** A request that is none is answered here; everything else becomes an exchange. */
final class GatewayServlet extends HttpServlet {
    private static final long serialVersionUID = 1L;
    private final transient Plant plant;
    private final transient Semaphore running;

    /**
     * The servlet.
     *
     * @param requestsMax how many requests run at one time; 0 when the threads are the limit
     */
    GatewayServlet(Plant plant, int requestsMax) {
        this.plant = plant;
        this.running = requestsMax == 0 ? null : new Semaphore(requestsMax);
    }

    @Override
    protected void service(HttpServletRequest ignored, HttpServletResponse alsoIgnored)
            throws IOException {
        Request request = (Request) ignored.getAttribute(InsideValve.REQUEST);
        if (running == null) {
            serve(request, request.getResponse());
            return;
        }
        if (!hasTurn()) {
            refuse(new Refusal(503, "too many requests run"), Category.SHED, request.getResponse());
            return;
        }
        try {
            serve(request, request.getResponse());
        } finally {
            running.release();
        }
    }

    /** No longer than for a connection to an origin: the exchange's own time has not begun. */
    private boolean hasTurn() {
        try {
            return running.tryAcquire(plant.timeouts().poolWaitMillis(), TimeUnit.MILLISECONDS);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    private void serve(Request from, Response to) throws IOException {
        // Entered before it is looked at: its filters must not be closed under this request.
        Snapshot snapshot = plant.gateway().enter();
        Scratch scratch = plant.scratches().take();
        try {
            wirespeed.gateway.core.Request request;
            try {
                request = RequestReader.read(from);
            } catch (Refusal refusal) {
                refuse(refusal, Category.CLIENT_BAD, to);
                return;
            }
            new Exchange(plant, snapshot, request, from.getInputStream(), new Reply(to), scratch)
                    .run();
        } finally {
            snapshot.end();
            plant.scratches().giveBack(scratch);
        }
    }

    /** An invalid request; no part of it reaches filters or origin. */
    private void refuse(Refusal refusal, Category category, Response to) throws IOException {
        plant.meters().refused(category, refusal.status());
        Reply reply = new Reply(to);
        wirespeed.gateway.core.Response response = Failure.refused(refusal);
        reply.head(response, false, response.framing(), false);
        byte[] body = new byte[response.body().remaining()];
        response.body().get(body);
        reply.write(body, body.length);
        reply.end();
        reply.leaveRest();
    }
}
