#!/bin/sh
# libevent's and libuv's own tests, on the kernel and accelerated; prints the tests that differ.
#
#   event_loops.sh BYPASS [WORK]     BYPASS: target/release/bypass; WORK: where sources are built
#
# Sources come from Debian (deb-src) and are built with cmake below WORK. Ends with 1 when a test
# passes on the kernel and not accelerated; run such a one again alone before believing it.
set -eu
bypass=$(realpath "${1:?event_loops.sh BYPASS [WORK]}")
work=${2:-/tmp/bypass-event-loops}
mkdir -p "$work/lists/partial"
cd "$work"
from_debian() {
    [ -d "$1" ] && return
    echo 'deb-src http://deb.debian.org/debian bookworm main' >sources.list
    set -- "$2" -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- \
        -o Dir::State::Lists="$work/lists"
    package=$1
    shift
    apt-get "$@" -q update >&2
    apt-get "$@" -q source --download-only "$package" >&2
    tar xf "$package"*.orig.tar.gz
}
differ() { # NAME: tests that pass on the kernel and not accelerated; those after the end of a cut run count too
    sed '/# SKIP/d; s/^ok [0-9]* - //; t; d' "$1.kernel" | sort -u >"$1.kernel.passed"
    sed 's/^ok [0-9]* - \([^ ]*\).*/\1/; t; d' "$1.accelerated" | sort -u >"$1.accelerated.passed"
    comm -23 "$1.kernel.passed" "$1.accelerated.passed" >"$1.differ"
    echo "$1: $(grep -cE '^(not )?ok ' "$1.kernel") tests, $(wc -l <"$1.kernel.passed") pass on the kernel," \
        "$(wc -l <"$1.differ") differ"
    cat "$1.differ"
}
from_debian libevent-2.1.12-stable libevent
from_debian libuv1-1.44.2 libuv1
if [ ! -x libevent-2.1.12-stable/build/bin/regress ]; then
    cmake -S libevent-2.1.12-stable -B libevent-2.1.12-stable/build -DEVENT__DISABLE_MBEDTLS=ON \
        -DEVENT__LIBRARY_TYPE=STATIC -DEVENT__DISABLE_BENCHMARK=ON -DEVENT__DISABLE_SAMPLES=ON \
        -DCMAKE_POLICY_VERSION_MINIMUM=3.5 >&2
    make -C libevent-2.1.12-stable/build regress >&2
fi
if [ ! -x libuv1-1.44.2/build/uv_run_tests ]; then
    cmake -S libuv1-1.44.2 -B libuv1-1.44.2/build -DBUILD_TESTING=ON >&2
    make -C libuv1-1.44.2/build uv_run_tests >&2
fi
for way in kernel accelerated; do
    run=
    [ $way = accelerated ] && run="$bypass run --"
    (cd libuv1-1.44.2/build && UV_RUN_AS_ROOT=1 timeout 900 $run ./uv_run_tests 2>&1 || true) >"libuv.$way"
    # It prints "group/name: " and, on this line or a later one, OK, SKIPPED or "[name FAILED]".
    (cd libevent-2.1.12-stable/build && timeout 900 $run ./bin/regress 2>&1 || true) >"libevent.$way.log"
    awk '/^[a-z0-9_]+(\/[A-Za-z0-9_]+)+: / { name = substr($1, 1, length($1) - 1) }
         name != "" && /OK$/ { print "ok 0 - " name; name = "" }
         name != "" && /SKIPPED$/ { print "ok 0 - " name " # SKIP"; name = "" }
         name != "" && / FAILED\]$/ { print "not ok 0 - " name; name = "" }' "libevent.$way.log" >"libevent.$way"
done
differ libuv
differ libevent
[ ! -s libuv.differ ] && [ ! -s libevent.differ ]
