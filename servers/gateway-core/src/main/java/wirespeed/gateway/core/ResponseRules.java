// What a well-formed response head must also obey; the origin's mistakes are answered with 502.
package wirespeed.gateway.core;

/** Framing and connection of a response, before it is known which request it answers. */
final class ResponseRules {
    private ResponseRules() {
    }

    static void apply(Response response) {
        Headers headers = response.headers();
        response.framing(Framing.of(headers, response.minor(), 502));
        boolean isKept = response.minor() == 1;
        if (headers.mayHave(Field.CONNECTION.bit)) {
            for (String option : HopByHop.options(headers)) {
                if (option.equalsIgnoreCase("close")) {
                    isKept = false;
                    break;
                }
                isKept |= option.equalsIgnoreCase("keep-alive");
            }
        }
        response.keepAlive(isKept);
    }
}
