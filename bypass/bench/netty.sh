#!/bin/bash
# The Netty http-server and wrk on the kernel and accelerated, A B A B: requests per second, ratio.
# usage: netty.sh nio|epoll [ROUNDS] [SECONDS]   needs java, wrk, http-server.jar, the release build
set -euo pipefail
transport=${1:?usage: netty.sh nio|epoll [ROUNDS] [SECONDS]} rounds=${2:-2} seconds=${3:-2}
root=$(cd "$(dirname "$0")/../.." && pwd)
library=${WIRESPEED_PRELOAD:-$root/target/release/libbypass_preload.so}
jar=$root/servers/http-server/target/http-server.jar
spin_us=${SPIN_US:-100000} warmup=${WARMUP:-5}
port=$((20000 + $$ % 10000))
for need in "$library" "$jar"; do [ -r "$need" ] || { echo "netty.sh: no $need: build it first" >&2; exit 2; }; done
if [ -w /dev/cpu_dma_latency ]; then exec 3<>/dev/cpu_dma_latency; printf '\0\0\0\0' >&3; fi
with() {
  if [ "$1" = bypass ]; then env EF_POLL_USEC="$spin_us" LD_PRELOAD="$library" "${@:2}"; else "${@:2}"; fi
}
ask() { with "$1" taskset -c 1 wrk -t1 -c50 -d"$2s" "http://127.0.0.1:$port/128" | awk '/Requests\/sec/ {print $2}'; }
all=$(mktemp); trap 'rm -f "$all"; kill $(jobs -p) 2>/dev/null || true' EXIT
for _ in $(seq "$rounds"); do
  for stack in kernel bypass; do
    with $stack taskset -c 0 java -Xms256m -Xmx256m -XX:+UseSerialGC -jar "$jar" --host 127.0.0.1 --port $port \
      --payload 128 --transport "$transport" --threads 1 >/dev/null 2>&1 &
    server=$!
    for _ in $(seq 100); do sleep 0.1; (exec 4<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && break; done
    ask $stack "$warmup" >/dev/null
    echo "$stack $(ask $stack "$seconds")" | tee -a "$all"
    kill $server; wait $server || true
  done
done
awk -v t="$transport" '{ s[$1] += $2; n[$1]++ }
  END { k = s["kernel"] / n["kernel"]; b = s["bypass"] / n["bypass"]
    printf "| Netty %s 128 B | %.0f | %.0f | %.2f |\n", t, k, b, b / k }' "$all"
