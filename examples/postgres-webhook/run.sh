#!/bin/sh
# An outbox in PostgreSQL, shared by two daemons that send its commands as signed webhooks. Needs Go, unless CONNECTD, SHOP
# and RECEIVER name the built programs, and a PostgreSQL: the database that SHOP_DSN names, or a server of its own that
# scripts/services.sh starts (on Debian and Ubuntu it fetches what is missing) and stops. Works in a temporary directory
# and removes it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
services=$here/../../scripts/services.sh
work=$(mktemp -d)
processes='' server=''
cleanup() {
	for process in $processes; do
		kill "$process" 2>/dev/null || true
	done
	[ -z "$server" ] || "$services" down
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# Tries a command until it succeeds; at most 20 seconds.
await() {
	for _ in $(seq 200); do
		"$@" && return
		sleep 0.1
	done
	echo "not within 20 seconds: $*" >&2
	cat "$work"/*.log >&2
	exit 1
}

CONNECTD=${CONNECTD:-$work/connectd}
SHOP=${SHOP:-$work/shop}
RECEIVER=${RECEIVER:-$work/receiver}
cd "$here"
[ -x "$CONNECTD" ] || go build -o "$CONNECTD" ../../cmd/connectd
[ -x "$SHOP" ] || go build -o "$SHOP" ./shop
[ -x "$RECEIVER" ] || go build -o "$RECEIVER" ../quickstart/receiver
if [ -z "${SHOP_DSN:-}" ]; then
	export CONNECTD_SERVICES_DIR="$work/services" CONNECTD_SERVICES_OWNER=$$
	server=ours
	"$services" up postgres
	eval "$("$services" env)"
	SHOP_DSN=$CONNECTD_TEST_POSTGRES_DSN
fi
export SHOP_DSN
cp connectd.yaml "$work"
cd "$work"

# A secret as Standard Webhooks writes it. Both sides have it.
WEBHOOK_SECRET=whsec_$(head -c 32 /dev/urandom | base64)
export WEBHOOK_SECRET

echo '$ receiver &'
RECEIVER_ADDRESS=127.0.0.1:0 "$RECEIVER" >receiver.log 2>&1 &
processes=$!
await grep -q '^listening on ' receiver.log
RECEIVER_URL=$(sed -n 's/^listening on //p' receiver.log)
export RECEIVER_URL

echo '$ connectd check'
"$CONNECTD" check
echo '$ connectd init'
"$CONNECTD" init >/dev/null

echo '$ connectd run &'
"$CONNECTD" run --http off 2>first.log &
first=$!
processes="$processes $first"
echo '$ connectd run &'
"$CONNECTD" run --http off 2>second.log &
second=$!
processes="$processes $second"
# Each takes its share of the 16 partitions.
shared() { [ "$("$CONNECTD" status --json | grep -c '"leases": 8')" = 2 ]; }
await shared
echo '$ connectd status'
"$CONNECTD" status

echo '$ shop order'
"$SHOP" order
arrived() { [ "$(grep -c ': order.placed ' receiver.log)" = "$1" ]; }
await arrived 10
dead() { "$CONNECTD" rows list --state dead | grep -q bob-2; }
await dead
echo '$ connectd rows list --state dead'
"$CONNECTD" rows list --state dead
echo '$ connectd rows explain bob-2'
"$CONNECTD" rows explain bob-2

echo '$ shop mend bob-2 && connectd rows retry bob-2'
"$SHOP" mend bob-2
"$CONNECTD" rows retry bob-2
await arrived 11
echo '$ cat receiver.log'
cat receiver.log

kill "$first" "$second"
for daemon in "$first" "$second"; do
	wait "$daemon" || { cat ./*.log >&2; exit 1; }
done
