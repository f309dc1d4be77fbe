// A span for each exchange, sent to an OpenTelemetry collector.
package wirespeed.gateway.runtime;

import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanBuilder;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.propagation.TextMapGetter;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.sdk.resources.Resource;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.SpanLimits;
import io.opentelemetry.sdk.trace.export.BatchSpanProcessor;
import io.opentelemetry.sdk.trace.samplers.Sampler;
import java.util.concurrent.TimeUnit;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.FinishFilter;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Step;

/**
 * Spans wait in a bounded queue for a thread of their own; when the collector is slow they are
 * dropped, and no exchange waits. Names follow OpenTelemetry's conventions for HTTP.
 */
final class Tracing implements FinishFilter {
    /** Set while another filter must not begin a span of its own. */
    static final String SPAN = "wirespeed.span";
    private static final int QUEUE_MAX = 8192;
    /** Between two batches, as the specification of OpenTelemetry has it. */
    private static final int DELAY_SECONDS = 5;
    /** Of a client's path: many long ones must not fill the heap while the collector is slow. */
    private static final int VALUE_CHARS_MAX = 1024;
    private static final W3CTraceContextPropagator W3C = W3CTraceContextPropagator.getInstance();
    private static final AttributeKey<String> METHOD = AttributeKey.stringKey("http.request.method");
    private static final AttributeKey<String> PATH = AttributeKey.stringKey("url.path");
    private static final AttributeKey<String> SCHEME = AttributeKey.stringKey("url.scheme");
    private static final AttributeKey<String> CLIENT = AttributeKey.stringKey("client.address");
    private static final AttributeKey<Long> STATUS =
            AttributeKey.longKey("http.response.status_code");
    private static final AttributeKey<String> ROUTE = AttributeKey.stringKey("http.route");
    private static final AttributeKey<String> ERROR = AttributeKey.stringKey("error.type");
    private static final AttributeKey<String> ADDRESS = AttributeKey.stringKey("server.address");
    private static final AttributeKey<Long> ATTEMPTS =
            AttributeKey.longKey("wirespeed.origin.attempts");
    private static final AttributeKey<Long> ORIGIN_MICROS =
            AttributeKey.longKey("wirespeed.origin.duration_us");
    private static final TextMapGetter<Headers> FIELDS = new TextMapGetter<>() {
        @Override
        public Iterable<String> keys(Headers headers) {
            return W3C.fields();
        }

        @Override
        public String get(Headers headers, String name) {
            return headers.get(name);
        }
    };

    private final SdkTracerProvider provider;
    private final Tracer tracer;

    private Tracing(OptionValues options) {
        provider = SdkTracerProvider.builder()
                .setResource(Resource.create(Attributes.of(
                        AttributeKey.stringKey("service.name"), options.text("service"))))
                .setSampler(Sampler.parentBased(Sampler.traceIdRatioBased(
                        options.count("sample-percent") / 100.0)))
                .setSpanLimits(SpanLimits.builder().setMaxAttributeValueLength(VALUE_CHARS_MAX).build())
                .addSpanProcessor(BatchSpanProcessor.builder(OtlpHttpSpanExporter.builder()
                        .setEndpoint(options.text("endpoint")).build())
                        .setMaxQueueSize(QUEUE_MAX)
                        .setScheduleDelay(DELAY_SECONDS * Seconds.nanos, TimeUnit.NANOSECONDS).build())
                .build();
        tracer = provider.get("wirespeed.gateway");
    }

    /** Configured by these options; null without a collector. */
    static Tracing of(OptionValues options) {
        return options.text("endpoint").isEmpty() ? null : new Tracing(options);
    }

    @Override
    public Phase phase() {
        return Phase.PRE;
    }

    @Override
    public int order() {
        return Integer.MIN_VALUE;
    }

    @Override
    public String name() {
        return "tracing";
    }

    @Override
    public Step apply(Context context) {
        Request request = context.request();
        Headers headers = request.headers();
        // Several lines, or one of which a part is wrong, begin no trace of somebody else's.
        io.opentelemetry.context.Context parent = headers.all("traceparent").size() == 1
                ? W3C.extract(io.opentelemetry.context.Context.root(), headers, FIELDS)
                : io.opentelemetry.context.Context.root();
        SpanBuilder builder = tracer.spanBuilder(request.method()).setParent(parent)
                .setSpanKind(SpanKind.SERVER)
                .setAttribute(METHOD, request.method()).setAttribute(PATH, request.path())
                .setAttribute(SCHEME, request.clientScheme())
                .setAttribute(CLIENT, request.clientAddress());
        Span span = builder.startSpan();
        context.attribute(SPAN, span);
        headers.remove("traceparent");
        headers.remove("tracestate");
        W3C.inject(parent.with(span), headers, (into, name, value) -> into.set(name, value));
        return Step.NEXT;
    }

    @Override
    public void finished(Context context, int status, long nanos) {
        if (!(context.attribute(SPAN) instanceof Span span) || !span.isRecording()) {
            return;
        }
        if (context.route() != null) {
            span.setAttribute(ROUTE, context.route().name());
            span.updateName(context.request().method() + " " + context.route().name());
        }
        if (context.address() != null) {
            span.setAttribute(ADDRESS, context.address().id());
            span.setAttribute(ATTEMPTS, context.attempts());
            span.setAttribute(ORIGIN_MICROS, context.originNanos() / 1000);
        }
        if (status > 0) {
            span.setAttribute(STATUS, status);
        }
        if (context.category() != Category.OK) {
            span.setAttribute(ERROR, context.category().name().toLowerCase(java.util.Locale.ROOT));
        }
        if (status >= 500 || status == 0) {
            span.setStatus(StatusCode.ERROR);
        }
        span.end();
    }

    /** Sends what waits, for some seconds at most. */
    @Override
    public void close() {
        provider.shutdown().join(5, TimeUnit.SECONDS);
    }
}
