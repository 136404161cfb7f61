#!/bin/sh
# Quickstart: an application commits orders with their commands, connectd carries the commands to a receiver as signed
# webhooks. Needs Go, unless CONNECTD, SHOP and RECEIVER name the built programs. Works in a temporary directory and
# removes it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
daemon=''
receiver=''
cleanup() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	[ -z "$receiver" ] || kill "$receiver" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT

CONNECTD=${CONNECTD:-$work/connectd}
SHOP=${SHOP:-$work/shop}
RECEIVER=${RECEIVER:-$work/receiver}
cd "$here"
[ -x "$CONNECTD" ] || go build -o "$CONNECTD" ../../cmd/connectd
[ -x "$SHOP" ] || go build -o "$SHOP" ./shop
[ -x "$RECEIVER" ] || go build -o "$RECEIVER" ./receiver
cp connectd.yaml "$work"
cd "$work"

# Tries a command until it succeeds; at most ten seconds.
await() {
	for _ in $(seq 100); do
		"$@" && return
		sleep 0.1
	done
	echo "not within ten seconds: $*" >&2
	cat ./*.log >&2
	exit 1
}

# A secret as Standard Webhooks writes it. Both sides have it.
WEBHOOK_SECRET=whsec_$(head -c 32 /dev/urandom | base64)
export WEBHOOK_SECRET

echo '$ receiver &'
RECEIVER_ADDRESS=127.0.0.1:0 "$RECEIVER" >receiver.log 2>&1 &
receiver=$!
await grep -q '^listening on ' receiver.log
RECEIVER_URL=$(sed -n 's/^listening on //p' receiver.log)
export RECEIVER_URL

echo '$ connectd check'
"$CONNECTD" check
echo '$ connectd init'
"$CONNECTD" init >/dev/null
echo '$ shop'
"$SHOP"
echo '$ connectd run &'
"$CONNECTD" run --http off 2>connectd.log &
daemon=$!

nothing_pending() { [ "$("$CONNECTD" rows list --state pending --json)" = "[]" ]; }
await nothing_pending
echo '$ connectd status'
"$CONNECTD" status
echo '$ cat receiver.log'
cat receiver.log

kill "$daemon"
wait "$daemon" || { cat connectd.log >&2; exit 1; }
daemon=''
