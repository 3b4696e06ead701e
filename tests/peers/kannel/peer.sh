#!/bin/bash
# A real Kannel 1.4.5 on loopback, with a scripted SMSC behind its SMPP driver.
#   peer.sh start RUNDIR [BASEPORT]     peer.sh stop RUNDIR     peer.sh env RUNDIR
#   peer.sh smsc-down RUNDIR | smsc-up RUNDIR      (only the SMPP side goes away / comes back)
# The npm module `smpp` is taken from .peers/ (`make peers`), else installed into RUNDIR.
# Environment: DLR_RETRY (default 3), WAIT_ACK_EXPIRE (default 0), SIM_LATE_MS (default 5000), INBOUND_URL (default nobody).
set -euo pipefail
PATH=$PATH:/usr/sbin  # where Debian puts bearerbox, and an ordinary user does not look
here=$(cd "$(dirname "$0")" && pwd); peers=$(cd "$here/../../.." && pwd)/.peers
cmd=${1:?start, stop, env, smsc-down or smsc-up}; mkdir -p "${2:?run folder}"; run=$(cd "$2" && pwd)
base=${3:-$(cat "$run/base" 2>/dev/null || echo 23000)}

tool() { command -v "$1" >/dev/null || { echo "peer.sh: no $1: apt-get install -y kannel kannel-extras nodejs npm" >&2; exit 3; }; }
gone() { for _ in $(seq 100); do kill -0 "$1" 2>/dev/null || return 0; sleep 0.1; done; kill -9 "$1" 2>/dev/null || true; }
waitport() { for _ in $(seq 150); do (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0; sleep 0.1; done; echo "peer.sh: port $1 does not open" >&2; return 1; }
stop1() {                                             # stop the process in a pid file, if it is still that program
  [ -s "$run/$1.pid" ] || return 0
  local p; p=$(cat "$run/$1.pid"); rm -f "$run/$1.pid"
  tr '\0' ' ' 2>/dev/null <"/proc/$p/cmdline" | grep -q -- "$2" || return 0
  kill "$p" 2>/dev/null || true; gone "$p"
}
sim_start() {
  SIM_LATE_MS=${SIM_LATE_MS:-5000} SIM_FIRST_ID=${SIM_FIRST_ID:-$(( $(date +%s) % 1000000 * 100 ))} \
    NODE_PATH="$peers/node_modules:$run/node/node_modules" node "$here/smsc-sim.js" $((base + 3)) "$run/sim.jsonl" >"$run/sim.out" 2>&1 &
  echo $! >"$run/sim.pid"; waitport $((base + 3))
}
smpp_online() { for _ in $(seq 100); do curl -s "http://127.0.0.1:$base/status.txt?password=adminpw" | grep -q "smpp1.*(online" && return 0; sleep 0.2; done; return 1; }

case $cmd in
start)
  tool bearerbox; tool smsbox; tool node; tool curl
  echo "$base" >"$run/base"
  [ -d "$peers/node_modules/smpp" ] || [ -d "$run/node/node_modules/smpp" ] || { tool npm; npm install --silent --no-audit --no-fund --prefix "$run/node" smpp@0.5.1 >/dev/null; }
  sed -e "s|@RUN@|$run|g" -e "s|@WAIT_ACK_EXPIRE@|${WAIT_ACK_EXPIRE:-0}|" -e "s|@DLR_RETRY@|${DLR_RETRY:-3}|" \
    -e "s|@INBOUND_URL@|${INBOUND_URL:-http://127.0.0.1:9/nobody}|" \
    $(for i in 0 1 2 3 4; do echo "-e s|@P$i@|$((base + i))|"; done) "$here/kannel.conf.in" >"$run/kannel.conf"
  sim_start
  bearerbox "$run/kannel.conf" >"$run/bearerbox.out" 2>&1 & echo $! >"$run/bearerbox.pid"
  waitport $((base + 1)); waitport $((base + 2))
  smsbox "$run/kannel.conf" >"$run/smsbox.out" 2>&1 & echo $! >"$run/smsbox.pid"
  mkfifo "$run/fake.in" 2>/dev/null || true
  /usr/lib/kannel/test/fakesmsc -H 127.0.0.1 -r $((base + 2)) -m 0 <>"$run/fake.in" >"$run/fake.out" 2>&1 & echo $! >"$run/fake.pid"
  waitport $((base + 4)); smpp_online || { echo "peer.sh: SMPP link did not come up" >&2; exit 1; }
  "$0" env "$run" ;;
stop)
  stop1 fake fakesmsc; stop1 bearerbox bearerbox       # a terminated bearerbox tells smsbox to end
  stop1 smsbox smsbox; stop1 sim smsc-sim.js; rm -f "$run/fake.in" ;;
smsc-down) stop1 sim smsc-sim.js ;;
smsc-up) sim_start; smpp_online ;;
env)
  echo "KANNEL_SENDSMS_URL=http://127.0.0.1:$((base + 4))/cgi-bin/sendsms KANNEL_USER=app KANNEL_PASSWORD=apppw"
  echo "KANNEL_ADMIN_URL=http://127.0.0.1:$base/status.xml?password=adminpw SIM_LOG=$run/sim.jsonl" ;;
*) echo "unknown: $cmd" >&2; exit 2 ;;
esac
