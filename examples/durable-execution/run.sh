#!/bin/sh
# How commands leave a run that must survive crashes, step by step, on a SQLite file; `./run.sh postgres`, `mysql` or `mariadb`
# does the same on a server: the empty database that TRIPS_DSN names, or a server of its own that scripts/services.sh starts (on
# Debian and Ubuntu it fetches what is missing) and stops. Needs Go, unless CONNECTD names the built program. Works in a
# temporary directory and removes it, or in the one that WORK names and leaves it.
set -eu

kind=${1:-sqlite}
here=$(cd "$(dirname "$0")" && pwd)
services=$here/../../scripts/services.sh
work=${WORK:-$(mktemp -d)}
daemon='' budget='' server=''
cleanup() {
	for process in $daemon $budget; do
		kill "$process" 2>/dev/null || true
	done
	[ -z "$server" ] || "$services" down
	[ -n "${WORK:-}" ] || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# Tries a command until it succeeds; at most a minute.
await() {
	end=$(($(date +%s) + 60))
	while [ "$(date +%s)" -lt "$end" ]; do
		"$@" && return
		sleep 0.1
	done
	echo "not within a minute: $*" >&2
	cat "$work"/*.log >&2
	exit 1
}

CONNECTD=${CONNECTD:-$work/connectd}
cd "$here"
[ -x "$CONNECTD" ] || go build -o "$CONNECTD" ../../cmd/connectd
go build -o "$work" ./planner ./budget ./witness
case $kind in
sqlite) TRIPS_KIND=sqlite TRIPS_DSN=./trips.db ;;
postgres) TRIPS_KIND=postgres ;;
mysql | mariadb) TRIPS_KIND=mysql ;;
*)
	echo "there is no $kind: say sqlite, postgres, mysql or mariadb" >&2
	exit 2
	;;
esac
if [ -z "${TRIPS_DSN:-}" ]; then
	export CONNECTD_SERVICES_DIR="$work/services" CONNECTD_SERVICES_OWNER=$$
	server=ours
	"$services" up "$kind"
	eval "$("$services" env)"
	case $kind in
	postgres) TRIPS_DSN=$CONNECTD_TEST_POSTGRES_DSN ;;
	mysql) TRIPS_DSN=$CONNECTD_TEST_MYSQL_DSN ;;
	mariadb) TRIPS_DSN=$CONNECTD_TEST_MARIADB_DSN ;;
	esac
fi
export TRIPS_KIND TRIPS_DSN
# The same configuration for each database, but for where that is.
if [ "$kind" = sqlite ]; then
	cp connectd.yaml "$work"
else
	# shellcheck disable=SC2016 # connectd reads the variable
	sed "s|plugin: sqlite|plugin: $TRIPS_KIND|; s|path: ./trips.db|dsn: \${TRIPS_DSN}|" connectd.yaml >"$work/connectd.yaml"
fi
cd "$work"
PATH=$work:$PATH

say() { printf '\n--- %s\n' "$1"; }
show() {
	echo "\$ $*"
	"$@"
}
connectd() { "$CONNECTD" "$@"; }
start_daemon() {
	echo '$ connectd run &'
	"$CONNECTD" run --http off 2>>connectd.log &
	daemon=$!
}
arrived() { [ "$(grep -c "^$1 arrived" budget.log)" = "$2" ]; }
books() { [ "$(witness books)" = "$1" ]; }
published() { connectd rows explain "$1" --json | grep -q '"state": "published"'; }
workers() { [ "$(witness workers)" = "$1" ]; }

say 'An event and its command are written in one transaction. Nobody need be there to send it.'
show planner tables
show planner decide run-1
show planner count

say 'The same is decided once more: the command has the same id, and the outbox refuses it. Neither is written.'
show planner decide run-1
say 'Something goes wrong in mid-transaction. Neither is written.'
show planner decide run-2 fail
show planner count

say "connectd takes on the planner's table. From now on the column state says what the column published said."
budget serve silent >budget.log 2>&1 &
budget=$!
await grep -q '^listening on ' budget.log
BUDGET_URL=$(sed -n 's/^listening on //p' budget.log)
export BUDGET_URL
show connectd check
# One partition, as SQLite has it, so that one lease is all there is to look at.
init='connectd init'
[ "$kind" = sqlite ] || init='connectd init --partitions 1'
echo "\$ $init"
$init >init.log
grep -q published init.log

say 'A publisher takes the lease and sends the command. It is killed before it hears that the command was taken.'
echo '$ budget serve silent &'
start_daemon
await arrived cmd-1 1
show witness lease claimed 1
echo '$ kill -9 connectd'
kill -9 "$daemon"
wait "$daemon" 2>/dev/null || true

say 'The next publisher is there at once. It asks each half second and must wait: the lease has its time, by the clock of the database.'
start_daemon
await workers 2
show connectd rows explain cmd-1
show witness lease early 2
say 'To wait is dull. What follows is logical time: the lease is made to end 30 seconds earlier.'
show witness later 30
await arrived cmd-1 2
await published cmd-1
show witness lease takeover 2
show witness row cmd-1
echo '$ cat budget.log'
grep '^cmd-' budget.log

say 'Published is not completed. run-2 goes on, and its command is carried out: it has a receipt, and its row may go.'
show planner decide run-2
await arrived cmd-2 1
await published cmd-2
show budget work cmd-2
await books 'rows= 1 receipts= 1 cleaned= 1'
say 'The row of cmd-1 is older, and its retention is 0s too. It stays: nobody has said that it was carried out.'
show witness books
show connectd rows explain cmd-1

say 'The budget service works off both deliveries: one effect, one receipt. Then the row may go.'
show budget work
show budget show
await books 'rows= 0 receipts= 2 cleaned= 2'
show witness books

say 'Nothing is left, and everything is accounted for.'
kill "$daemon"
wait "$daemon" || { cat connectd.log >&2; exit 1; }
daemon=''
show connectd audit
