#!/bin/sh
# Quickstart: an application commits orders with their commands, connectd carries the commands to a file.
# Needs Go, unless CONNECTD and SHOP name the built programs. Works in a temporary directory and removes it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
daemon=
cleanup() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT

CONNECTD=${CONNECTD:-$work/connectd}
SHOP=${SHOP:-$work/shop}
cd "$here"
[ -x "$CONNECTD" ] || go build -o "$CONNECTD" ../../cmd/connectd
[ -x "$SHOP" ] || go build -o "$SHOP" ./shop
cp connectd.yaml "$work"
cd "$work"

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
echo '$ cat arrived.jsonl'
cat arrived.jsonl

kill "$daemon"
wait "$daemon" || { cat connectd.log >&2; exit 1; }
daemon=
