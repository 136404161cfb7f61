#!/bin/sh
# An outbox in PostgreSQL whose commands go to topics of Apache Kafka; the daemon is killed when it has sent some and not yet
# written that down. Needs Go, unless CONNECTD, SHOP and CONSUMER name the built programs, and both servers: the empty database
# that SHOP_DSN names (PostgreSQL 14 or later) and the broker KAFKA_BROKER, host:port, or servers of its own that
# scripts/services.sh starts (on Debian and Ubuntu it fetches what is missing) and stops. Topics and consumer group have
# names that begin with TOPIC_PREFIX, "shop." if it is not set. Works in a temporary directory and removes it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
services=$here/../../scripts/services.sh
work=$(mktemp -d)
daemon='' consumer='' lock='' server=''
cleanup() {
	for process in $daemon $consumer $lock; do
		kill "$process" 2>/dev/null || true
	done
	[ -z "$server" ] || "$services" down
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# Tries a command until it succeeds; at most 30 seconds.
await() {
	for _ in $(seq 300); do
		"$@" && return
		sleep 0.1
	done
	echo "not within 30 seconds: $*" >&2
	cat "$work"/*.log >&2
	exit 1
}

CONNECTD=${CONNECTD:-$work/connectd}
SHOP=${SHOP:-$work/shop}
CONSUMER=${CONSUMER:-$work/consumer}
cd "$here"
[ -x "$CONNECTD" ] || go build -o "$CONNECTD" ../../cmd/connectd
[ -x "$SHOP" ] || go build -o "$SHOP" ./shop
[ -x "$CONSUMER" ] || go build -o "$CONSUMER" ./consumer
if [ -z "${SHOP_DSN:-}" ] || [ -z "${KAFKA_BROKER:-}" ]; then
	export CONNECTD_SERVICES_DIR="$work/services" CONNECTD_SERVICES_OWNER=$$
	server=ours
	"$services" up postgres kafka
	eval "$("$services" env)"
	SHOP_DSN=$CONNECTD_TEST_POSTGRES_DSN KAFKA_BROKER=$CONNECTD_TEST_KAFKA_BROKERS
fi
TOPIC_PREFIX=${TOPIC_PREFIX:-shop.}
CONSUMER_DSN=$SHOP_DSN # mostly a database of its own
export SHOP_DSN KAFKA_BROKER TOPIC_PREFIX CONSUMER_DSN
cp connectd.yaml "$work"
cd "$work"

# The server is to see at once that a daemon was killed, also while its statement waits for a lock.
export PGOPTIONS='-c client_connection_check_interval=100ms'
start_daemon() {
	echo '$ connectd run &'
	"$CONNECTD" run --http off 2>>connectd.log &
	daemon=$!
}
start_consumer() {
	echo '$ consumer &'
	"$CONSUMER" >>consumer.log 2>&1 &
	consumer=$!
}
end() { # PROCESS
	kill "$1"
	wait "$1" || { cat "$work"/*.log >&2; exit 1; }
}
arrived() { [ "$(grep -c @ consumer.log)" = "$1" ]; }
running() { "$CONNECTD" status | grep -q running; }
nothing_pending() { [ "$("$CONNECTD" rows list --state pending --json)" = "[]" ]; }

echo '$ connectd check'
"$CONNECTD" check
echo '$ connectd init'
"$CONNECTD" init >/dev/null

echo '--- Each command goes to the topic that its row names.'
start_daemon
echo '$ shop order 1'
"$SHOP" order 1
await nothing_pending # now the topics are there
start_consumer
await arrived 6

echo '--- Daemon and consumer are away for a moment. Then the outbox is locked: what was sent cannot be written down.'
end "$daemon"
end "$consumer"
echo '$ shop order 2'
"$SHOP" order 2
echo '$ shop lock &'
"$SHOP" lock >lock.log 2>&1 &
lock=$!
await grep -q locked lock.log
start_daemon
start_consumer # goes on at its offsets
await arrived 12
echo '$ kill -9 connectd'
kill -9 "$daemon"
wait "$daemon" 2>/dev/null || true
end "$lock"
lock=''

echo '--- The next daemon knows which commands may have been sent, and sends them again.'
start_daemon
await arrived 18
echo '$ shop order 3'
"$SHOP" order 3
await arrived 24
await nothing_pending
await running
echo '$ connectd status'
"$CONNECTD" status
echo '$ cat consumer.log'
cat consumer.log
echo '$ consumer count'
"$CONSUMER" count

end "$daemon"
daemon=''
end "$consumer"
consumer=''
echo "--- Shown: 18 commands; $(grep -c 'possible duplicate' consumer.log) were sent again after a kill -9, with a mark; each was handled once."
