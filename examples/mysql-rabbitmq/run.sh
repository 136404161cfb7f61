#!/bin/sh
# An outbox in MySQL whose commands go to a quorum queue of RabbitMQ. One that no queue takes becomes dead and is sent when there
# is a binding; the consumer and the daemon are killed in the middle. Needs Go, unless CONNECTD, SHOP and CONSUMER name the
# built programs, and both servers: the empty database that SHOP_DSN names and the virtual host RABBITMQ_VHOST, empty too, at
# RABBITMQ_ADDRESS (host:port) for RABBITMQ_USER with RABBITMQ_PASSWORD; or servers of its own that scripts/services.sh
# starts (on Debian and Ubuntu it fetches what is missing) and stops. Works in a temporary directory and removes it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
services=$here/../../scripts/services.sh
work=$(mktemp -d)
daemon='' consumer='' report='' server=''
cleanup() {
	for process in $daemon $consumer $report; do
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
if [ -z "${SHOP_DSN:-}" ] || [ -z "${RABBITMQ_ADDRESS:-}" ]; then
	export CONNECTD_SERVICES_DIR="$work/services" CONNECTD_SERVICES_OWNER=$$
	server=ours
	"$services" up mysql rabbitmq
	eval "$("$services" env)"
	SHOP_DSN=$CONNECTD_TEST_MYSQL_DSN
	url=${CONNECTD_TEST_RABBITMQ_URL#amqp://} # user:password@host:port/
	url=${url%/}
	login=${url%@*}
	RABBITMQ_ADDRESS=${url##*@} RABBITMQ_USER=${login%%:*} RABBITMQ_PASSWORD=${login#*:} RABBITMQ_VHOST=/
fi
CONSUMER_DSN=$SHOP_DSN # mostly a database of its own
export SHOP_DSN CONSUMER_DSN RABBITMQ_ADDRESS RABBITMQ_USER RABBITMQ_PASSWORD RABBITMQ_VHOST
cp connectd.yaml "$work"
cd "$work"
touch consumer.log

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
order() {
	echo "\$ shop order $1"
	"$SHOP" order "$1"
}
end() { # PROCESS
	kill "$1"
	wait "$1" || { cat "$work"/*.log >&2; exit 1; }
}
crash() { # PROCESS
	kill -9 "$1"
	wait "$1" 2>/dev/null || true
}
running() { "$CONNECTD" status | grep -q running; }
handled() { [ "$(grep -o '[a-z]*-[0-9]-[a-z.]*' consumer.log | sort -u | wc -l)" -ge "$1" ]; } # different ones
repeated() { [ "$(grep -c 'possible duplicate.*ignored' consumer.log)" = "$1" ]; }
dead() { "$CONNECTD" rows list --state dead 2>/dev/null | grep -q invoice; }
nothing_pending() { [ "$("$CONNECTD" rows list --state pending --json)" = "[]" ]; }

echo '$ connectd check'
"$CONNECTD" check
echo '$ connectd init'
"$CONNECTD" init >/dev/null

echo '--- The queue takes orders. An invoice that is wanted comes back: nothing is bound for it.'
start_daemon
await running # exchange and queue are there
start_consumer
order 1
await handled 3
await dead
echo '$ connectd rows list --state dead'
"$CONNECTD" rows list --state dead
echo '$ connectd rows explain eve-1-invoice.wanted'
"$CONNECTD" rows explain eve-1-invoice.wanted

echo '--- With a binding it can be sent.'
echo "\$ consumer bind 'invoice.*' && connectd rows retry eve-1-invoice.wanted"
"$CONSUMER" bind 'invoice.*'
"$CONNECTD" rows retry eve-1-invoice.wanted
await handled 4

echo '--- The consumer crashes while it works. What it has not acknowledged comes again.'
order 2
await handled 5
echo '$ kill -9 consumer'
crash "$consumer"
start_consumer
await handled 8

echo '--- The daemon crashes when it has sent four commands and could not write that down, because the outbox was locked.'
end "$daemon"
order 3
echo '$ shop report &'
"$SHOP" report >report.log 2>&1 &
report=$!
await grep -q locked report.log
start_daemon
await handled 12
echo '$ kill -9 connectd'
crash "$daemon"
end "$report"
report=''

echo '--- The next daemon knows which commands may have been sent, and sends them again.'
start_daemon
await repeated 4
order 4
await handled 16
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
echo "--- Shown: 16 commands; $(grep -c 'possible duplicate.*ignored' consumer.log) were sent again after a kill -9, with a mark; one was dead and mended; each was handled once."
