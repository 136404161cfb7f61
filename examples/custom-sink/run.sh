#!/bin/sh
# A sink of one's own: built, put into a plugin_dir, and given the commands of an application to carry to a server.
# Needs Go, unless CONNECTD and SHOP name the built programs. Works in a temporary directory and removes it.
set -eu
umask 022 # connectd runs no plugin that others may write

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
server= daemon=
cleanup() {
	for process in $daemon $server; do
		kill "$process" 2>/dev/null || true
	done
	rm -rf "$work"
}
trap cleanup EXIT

cd "$here"
CONNECTD=${CONNECTD:-$work/connectd}
SHOP=${SHOP:-$work/shop}
[ -x "$CONNECTD" ] || go -C ../.. build -o "$CONNECTD" ./cmd/connectd
[ -x "$SHOP" ] || go -C ../.. build -o "$SHOP" ./examples/quickstart/shop
go build -o "$work/server" ./server
mkdir "$work/plugins"
echo '$ go build -o plugins/connectd-sink-line .'
go build -o "$work/plugins/connectd-sink-line" .
cp connectd.yaml "$work"
cd "$work"

echo '$ connectd plugins list'
"$CONNECTD" plugins list

export LINE_TOKEN='open sesame' # what the server and the sink agree on
./server -listen 127.0.0.1:0 -file arrived.txt >server.log &
server=$!
for _ in $(seq 100); do
	[ -s server.log ] && break
	sleep 0.1
done
LINE_ADDRESS=$(sed -n 's/^listening on //p' server.log)
export LINE_ADDRESS

echo '$ connectd check'
"$CONNECTD" check
echo '$ connectd init'
"$CONNECTD" init >/dev/null
echo '$ shop'
"$SHOP"
echo '$ connectd run &'
"$CONNECTD" run --http off 2>connectd.log &
daemon=$!

# Until nothing is pending; at most ten seconds.
for _ in $(seq 100); do
	[ "$("$CONNECTD" rows list --state pending --json)" = "[]" ] && break
	sleep 0.1
done
echo '$ connectd status'
"$CONNECTD" status
echo '$ cat arrived.txt'
cat arrived.txt

kill "$daemon"
wait "$daemon" || { cat connectd.log >&2; exit 1; }
daemon=
