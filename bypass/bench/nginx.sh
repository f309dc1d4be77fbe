#!/bin/bash
# nginx and wrk on the kernel and accelerated, A B A B: requests per second and their ratio.
# usage: nginx.sh [ROUNDS] [SECONDS]   needs nginx, wrk, the release build; core 0 serves, core 1 asks
# CLIENT=wrk|wirespeed-load, SPIN_US=100000 (20: balanced), CASES="0B 1024B nopush 10240B 102400B
# close one-connection", WIRESPEED_PRELOAD=library, OTHER_PRELOAD=library: a third column, to compare two.
set -euo pipefail
rounds=${1:-3} seconds=${2:-1}
root=$(cd "$(dirname "$0")/../.." && pwd)
library=${WIRESPEED_PRELOAD:-$root/target/release/libbypass_preload.so}
other=${OTHER_PRELOAD:-}
client=${CLIENT:-wrk}
generator=$root/target/release/wirespeed-load
cases=${CASES:-0B 1024B nopush 10240B 102400B close one-connection}
export spin_us=${SPIN_US:-100000}
case $client in
wrk) ;;
wirespeed-load) [ -x "$generator" ] || { echo "nginx.sh: no $generator: build it with cargo build --release" >&2; exit 2; } ;;
*) echo "nginx.sh: CLIENT=$client: it is wrk or wirespeed-load" >&2; exit 2 ;;
esac
[ -r "$library" ] || { echo "nginx.sh: no $library: build it with cargo build --release" >&2; exit 2; }
room=$(mktemp -d)
# BBR holds each segment back by a timer: the kernel has CUBIC for the run, as far as this user may say so.
control=/proc/sys/net/ipv4/tcp_congestion_control
control_before=$(cat $control)
[ ! -w $control ] || echo cubic >$control 2>/dev/null || true
trap 'stop; rm -rf "$room"; [ "$(cat $control)" = "$control_before" ] || echo "$control_before" >$control' EXIT
port=$((20000 + $$ % 10000))
cc -O2 -pthread -o "$room/distance" "$(dirname "$0")/distance.c"
mkdir "$room/www" "$room/www/nopush"
for size in 1024 10240 102400; do head -c $size /dev/urandom >"$room/www/$size"; done
cp "$room/www/1024" "$room/www/nopush/1024"
chmod -R a+rX "$room"
# Only files that have rested for two seconds are sent from memory.
sleep 2.1
cat >"$room/nginx.conf" <<CONF
worker_processes 1;
pid $room/pid;
error_log $room/error.log error;
events { worker_connections 4096; accept_mutex off; }
http {
  access_log off; sendfile on; keepalive_requests 1000000000; open_file_cache max=100 inactive=600s;
  server { listen 127.0.0.1:$port; root $room/www; location = /0 { return 200 ""; }
    location /nopush/ { tcp_nopush on; } }
}
CONF
# Waking a halted virtual core takes tens of microseconds: idle states are held off for both stacks.
if [ -w /dev/cpu_dma_latency ]; then exec 3<>/dev/cpu_dma_latency; printf '\0\0\0\0' >&3; idle=held; else idle=free; fi

with() { # kernel | bypass | other, command
  case $1 in
  kernel) "${@:2}" ;;
  bypass) env EF_POLL_USEC="$spin_us" LD_PRELOAD="$library" "${@:2}" ;;
  other) env EF_POLL_USEC="$spin_us" LD_PRELOAD="$other" "${@:2}" ;;
  esac
}
start() {
  with "$1" taskset -c 0 nginx -c "$room/nginx.conf" -e "$room/error.log"
  for _ in $(seq 100); do [ -s "$room/pid" ] && break; sleep 0.02; done
  sleep 0.2
}
stop() {
  [ -s "$room/pid" ] || return 0
  local pid; pid=$(cat "$room/pid"); kill "$pid"
  while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
}
ask() { # stack case connections path options: requests per second
  local rps address="http://127.0.0.1:$port/$4"
  if [ "$client" = wrk ]; then
    rps=$(with "$1" taskset -c 1 wrk -t1 -c"$3" -d"${seconds}s" "${@:5}" "$address" |
      awk '/Requests\/sec/ {print $2} /Socket errors|Non-2xx/ {print "ERRORS" > "/dev/stderr"}')
  else
    with "$1" taskset -c 1 "$generator" -t1 -c"$3" -d"${seconds}s" --warmup 200ms "${@:5}" \
      --json "$room/json" "$address" >"$room/text"
    rps=$(tr -d ' \n' <"$room/json" | grep -o '"rps":[0-9.]*' | head -1 | cut -d: -f2)
  fi
  echo "$1 $2 ${rps:-0}"
}
distance() { # near: the cores share a cache, far: they do not; a hypervisor moves a guest's cores (distance.c)
  [ "$("$room/distance" 0 1)" -lt 120 ] && echo near || echo far
}
run() { # stack case
  start "$1"
  case $2 in
  close) ask "$1" close 50 0 -H 'Connection: close' ;;
  nopush) ask "$1" nopush 50 nopush/1024 ;;
  one-connection) ask "$1" one-connection 1 0 ;;
  *) ask "$1" "$2" 50 "${2%B}" ;;
  esac
  stop
}
echo "# rounds $rounds, $seconds s each, client $client, spin $spin_us us, idle states $idle, kernel $(uname -r), $(cat $control)"
# The stacks of a case follow each other at once, in turning order: a shared host is another one a minute later.
stacks="kernel bypass${other:+ other}"
for _ in $(seq "$rounds"); do
  for case in $cases; do
    before=$(distance)
    figures=$(for stack in $stacks; do run "$stack" "$case"; done)
    after=$(distance)
    [ "$before" = "$after" ] || after=moved
    awk -v where="$after" '{ print $1, $2 "," where, $3 }' <<<"$figures"
  done
  stacks="${stacks#* } ${stacks%% *}"
done | tee "$room/all" | sed 's/^/# /' >&2
awk -v other="$other" '{ n[$1,$2]++; v[$1,$2,n[$1,$2]] = $3; if (!seen[$2]++) order[++cases] = $2 }
  function sorted(m,   i, j, t) {
    for (i = 1; i <= m; i++) for (j = i + 1; j <= m; j++) if (a[j] < a[i]) { t = a[i]; a[i] = a[j]; a[j] = t }
    return m % 2 ? a[(m + 1) / 2] : (a[m / 2] + a[m / 2 + 1]) / 2 }
  function median(s, c,   i) { for (i = 1; i <= n[s,c]; i++) a[i] = v[s,c,i]; return sorted(n[s,c]) }
  function ratio(s, t, c,   i, m) { # median of the rounds own ratios, and their range
    for (i = 1; i <= n[s,c]; i++) a[i] = v[t,c,i] ? v[s,c,i] / v[t,c,i] : 0
    m = sorted(n[s,c]); return sprintf("%.2f (%.2f–%.2f)", m, a[1], a[n[s,c]]) }
  END { printf "| case | kernel /s | bypass /s | ratio |%s\n", other ? " other /s | bypass : other |" : ""
    printf "|---|---|---|---|%s\n", other ? "---|---|" : ""
    for (i = 1; i <= cases; i++) { c = order[i]
      printf "| %s | %.0f | %.0f | %s |", c, median("kernel", c), median("bypass", c), ratio("bypass", "kernel", c)
      if (other) printf " %.0f | %s |", median("other", c), ratio("bypass", "other", c)
      printf "\n" } }' "$room/all"
