#!/bin/sh
# A table of commands in MySQL, with rows in it, adopted by connectd and relayed to a file. `./run.sh mariadb` does it with
# MariaDB. Needs Go, unless CONNECTD and FLOW name the built programs, and a server: the empty database that FLOW_DSN names, or
# a server of its own that scripts/services.sh starts (on Debian and Ubuntu it fetches what is missing) and stops. Works in a
# temporary directory and removes it.
set -eu

kind=${1:-mysql}
here=$(cd "$(dirname "$0")" && pwd)
services=$here/../../scripts/services.sh
work=$(mktemp -d)
daemon='' server=''
cleanup() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	[ -z "$server" ] || "$services" down
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

CONNECTD=${CONNECTD:-$work/connectd}
FLOW=${FLOW:-$work/flow}
cd "$here"
[ -x "$CONNECTD" ] || go build -o "$CONNECTD" ../../cmd/connectd
[ -x "$FLOW" ] || go build -o "$FLOW" ./flow
if [ -z "${FLOW_DSN:-}" ]; then
	export CONNECTD_SERVICES_DIR="$work/services" CONNECTD_SERVICES_OWNER=$$
	server=ours
	"$services" up "$kind"
	eval "$("$services" env)"
	case $kind in
	mariadb) FLOW_DSN=$CONNECTD_TEST_MARIADB_DSN ;;
	*) FLOW_DSN=$CONNECTD_TEST_MYSQL_DSN ;;
	esac
fi
export FLOW_DSN
cp connectd.yaml "$work"
cd "$work"

echo '$ flow before'
"$FLOW" before
echo '$ connectd check'
"$CONNECTD" check
echo '$ connectd init'
"$CONNECTD" init
echo '$ connectd run &'
"$CONNECTD" run --http off 2>connectd.log &
daemon=$!
echo '$ flow go'
"$FLOW" go

# Until nothing is pending; at most 20 seconds.
for _ in $(seq 200); do
	[ "$("$CONNECTD" rows list --state pending --json)" = "[]" ] && break
	sleep 0.1
done
echo '$ connectd status'
"$CONNECTD" status
echo '$ cat arrived.jsonl'
cat arrived.jsonl

kill "$daemon"
wait "$daemon" || { cat connectd.log >&2; exit 1; }
daemon=''
