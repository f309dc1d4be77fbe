// Shared by the programs next to this file: cases that run one after the other, each in a thread of its
// own with a bound in time, and print one line, "ok NAME" or "not ok NAME - what happened".

import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

class Cases {
    interface Case {
        void run() throws Throwable;
    }

    /** Starts a thread of the kind that the program is about. */
    private static Function<Runnable, Thread> start;

    /** Runs the cases whose name has the argument in it, all without one; ends the process. */
    static void runAll(Map<String, Case> cases, String[] arguments, int secondsMax,
            Function<Runnable, Thread> start) {
        Cases.start = start;
        cases.keySet().removeIf(name -> arguments.length > 0 && !name.contains(arguments[0]));
        int failed = 0;
        for (Map.Entry<String, Case> each : cases.entrySet()) {
            failed += run(each.getKey(), each.getValue(), secondsMax) ? 0 : 1;
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    private static boolean run(String name, Case body, int secondsMax) {
        CompletableFuture<Throwable> end = new CompletableFuture<>();
        Thread thread = start.apply(() -> {
            try {
                body.run();
                end.complete(null);
            } catch (Throwable wrong) {
                end.complete(wrong);
            }
        });
        Throwable wrong;
        try {
            wrong = end.get(secondsMax, TimeUnit.SECONDS);
        } catch (Exception hung) {
            wrong = new IllegalStateException("hung at " + Arrays.toString(thread.getStackTrace()));
        }
        System.out.println(wrong == null ? "ok " + name : "not ok " + name + " - " + wrong);
        return wrong == null;
    }

    static void check(boolean holds, Object said) {
        if (!holds) {
            throw new IllegalStateException(String.valueOf(said));
        }
    }

    /** Runs the body, which must throw exactly this kind. */
    static void expect(Class<? extends Throwable> kind, Case body) {
        try {
            body.run();
        } catch (Throwable thrown) {
            check(thrown.getClass() == kind, "thrown was " + thrown);
            return;
        }
        throw new IllegalStateException("nothing thrown, expected " + kind.getSimpleName());
    }

    /** Does something after a while, from another thread. */
    static void later(Case body) {
        start.apply(() -> {
            try {
                Thread.sleep(200);
                body.run();
            } catch (Throwable wrong) {
                System.out.println("# later: " + wrong);
            }
        });
    }
}
