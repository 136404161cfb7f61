#!/usr/bin/env bash
# Real servers for the tests, on loopback, and drivers for other languages. `scripts/services.sh` alone says how it is used.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

usage() {
	cat <<'USAGE'
Real PostgreSQL, PgBouncer, MySQL, MariaDB, RabbitMQ and Apache Kafka for the tests.

  scripts/services.sh up [NAME...]     start them, or only these, and wait until they answer
  scripts/services.sh env              their addresses, for the shell: eval "$(scripts/services.sh env)"
  scripts/services.sh down             stop all of them and forget their data
  scripts/services.sh drivers          where drivers for Python and Node are, as env, to test what docs/consumers.md shows
  scripts/services.sh run COMMAND...   a set of their own around one command: up, COMMAND with all addresses, down
  scripts/services.sh stop NAME        end one in good order, as for a restart
  scripts/services.sh kill NAME        let one crash: every process of it gets SIGKILL
  scripts/services.sh start NAME       start it again, on the same port and the same data
  scripts/services.sh clock SECONDS    let the clock of databases that were started with one of their own jump
  scripts/services.sh rabbitmqctl ...  RabbitMQ's own tool

NAME is one of: postgres pgbouncer mysql mariadb rabbitmq kafka. On Debian and Ubuntu what is missing, about 200 MB the
first time, is fetched with apt and Maven into /var/cache/connectd-services (root) or ~/.cache/connectd-services and used
from there; that folder may be removed when no server runs. Elsewhere the servers run in containers, if Docker or Podman
does. They listen on 127.0.0.1, on free ports, with a password of their own; their data is in /tmp/connectd-services-UID,
their logs in .services/log. Each clone has a set of its own. Variables that change this:

  CONNECTD_SERVICES_DIR     the folder for logs and for what is up, instead of .services
  CONNECTD_SERVICES_CACHE   the folder for what is fetched
  CONNECTD_SERVICES_TLS     a folder with cert.pem and key.pem: MySQL and MariaDB have that certificate and demand TLS
  CONNECTD_SERVICES_CLOCK   seconds, as +600 or -0.5: PostgreSQL and MariaDB have a clock that is so far off
  CONNECTD_SERVICES_OWNER   a process: the set that `up` makes is removed some time after this has ended
USAGE
}

ALL=(postgres pgbouncer mysql mariadb rabbitmq kafka)
START_SECONDS=180
STOP_SECONDS=30

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)/services
# shellcheck source=services/packages.sh
. "$here/packages.sh"
# shellcheck source=services/containers.sh
. "$here/containers.sh"
# shellcheck source=services/processes.sh
. "$here/processes.sh"
# shellcheck source=services/databases.sh
. "$here/databases.sh"
# shellcheck source=services/clock.sh
. "$here/clock.sh"
# shellcheck source=services/brokers.sh
. "$here/brokers.sh"
# shellcheck source=services/drivers.sh
. "$here/drivers.sh"

up() {
	local each names failed=0 children=() mine=()
	names=$(chosen "$@")
	lock
	trap interrupted INT TERM HUP
	open_set
	[[ ! ${CONNECTD_SERVICES_CLOCK:-} || -e $home/clock ]] || set_clock "$CONNECTD_SERVICES_CLOCK"
	for each in $names; do
		alive "$each" || mine+=("$each")
		bring_up "$each" &
		children+=($!)
	done
	for each in "${children[@]}"; do wait "$each" || failed=1; done
	trap - INT TERM HUP
	exec 9>&- # what `run` runs must not hold it
	return "$failed"
}

chosen() { # NAME...: PgBouncer comes with its database
	local each
	(($#)) || set -- "${ALL[@]}"
	[[ " $* " != *" pgbouncer "* ]] || set -- postgres "$@"
	for each in "$@"; do known "$each"; done
	printf '%s\n' "$@" | sort -u
}

known() { [[ " ${ALL[*]} " == *" $1 "* ]] || fail "there is no $1: it is one of ${ALL[*]}"; }

bring_up() { # NAME
	local begin=${EPOCHREALTIME/[.,]/} tenths was=
	local -n number=$1_port
	trap '' INT # the terminal sends it to all; our parent ends us
	trap failed EXIT
	set_user "$1"
	doing="fetched" words=fetch.log
	fetch "$1"
	doing="prepared" words=log
	if alive "$1"; then
		was="was up"
	else
		[[ -e $home/$1/created ]] || create "$1"
		end KILL 0 "$1" # it may have died without us
		own_clock
		spawn "$1"
	fi
	doing="started"
	answers "$1"
	echo "$version" >"$home/$1/version"
	trap - EXIT
	tenths=$(((${EPOCHREALTIME/[.,]/} - begin) / 100000))
	say "$1" "$version on 127.0.0.1:$number, ${was:-$((tenths / 10)).$((tenths % 10)) s}"
}

create() { # NAME
	rm -rf "${home:?}/$1"
	mkdir -p "$home/$1/data" "$home/$1/tmp"
	((EUID)) || chown -R nobody "$home/$1"
	chmod -R 700 "$home/$1"
	: >"$log/$1.log"
	"$1_create"
	touch "$home/$1/created"
}

answers() { # NAME
	local deadline=$((SECONDS + START_SECONDS))
	until [[ -e $home/$1.pid ]] && "$1_ready"; do
		[[ ! -e $home/$1.pid ]] || alive "$1" || fail "it ended by itself"
		((SECONDS < deadline)) || fail "it does not answer after $START_SECONDS s"
		sleep 0.1
	done
}

failed() {
	tail -n 20 "$log/$name.$words" | sed 's/^/  /' >&2
	say "$name" "could not be $doing; see $log/$name.$words"
}

interrupted() { # what `up` started goes, and nothing else
	local each
	trap '' INT TERM HUP
	say services "interrupted, stopping"
	let_installation_finish
	disown -a
	kill_all "$(frozen "${children[@]}")"
	if find_set; then
		for each in "${mine[@]}"; do discard "$each"; done
		close_set
	fi
	exec 8>&-
	sweep
	exit 130
}

down() {
	local each failed=0 children=()
	lock
	if find_set; then
		trap '' INT TERM HUP
		for each in "${ALL[@]}"; do
			discard "$each" &
			children+=($!)
		done
		for each in "${children[@]}"; do wait "$each" || failed=1; done
		close_set
	fi
	sweep
	return "$failed"
}

env_lines() {
	local each
	find_set || fail "they are not up: scripts/services.sh up"
	for each in "${ALL[@]}"; do
		if alive "$each"; then
			"${each}_env"
			echo "CONNECTD_TEST_${each^^}_VERSION=$(<"$home/$each/version")"
		fi
	done
	[[ ! -e $home/clock.version ]] || echo "CONNECTD_TEST_CLOCK=$(<"$home/clock.version")"
	echo "CONNECTD_TEST_SERVICES_SH=$here.sh"
}

for_shell() { sed "s/=\(.*\)/='\1'/; s/^/export /"; }

run() {
	local code=0 child each line
	state=$state/run-$$
	log=$state/log
	mkdir -p "$log"
	trap finish EXIT
	CONNECTD_SERVICES_OWNER=$$
	drivers
	export "${driver_lines[@]}"
	up "${ALL[@]}"
	while IFS= read -r line; do export "${line?}"; done < <(env_lines)
	export CONNECTD_TEST_SERVICES=1 CONNECTD_SERVICES_DIR=$state
	# In a group of its own: it gets the signals from us, and we live to clean up.
	set -m
	"$@" &
	child=$!
	set +m
	for each in INT TERM HUP; do
		# shellcheck disable=SC2064 # now
		trap "kill -$each -- -$child 2>/dev/null || true" "$each"
	done
	wait "$child" || code=$?
	while [[ $(started "$child") ]]; do # a signal ended the wait, not the child
		code=0
		wait "$child" || code=$?
	done
	exit "$code"
}

finish() {
	local code=$?
	trap '' INT TERM HUP
	down
	if ((code)); then
		rm -rf "${state%/*}/failed"
		mv "$log" "${state%/*}/failed"
		say services "failed; the servers' logs are in ${state%/*}/failed"
	fi
	rm -rf "$state"
	exit "$code"
}

lock() {
	exec 9>"$state/lock"
	flock -n 9 || {
		say services "waiting for another run in this clone"
		flock -w 600 9 || fail "another run in this clone does not end"
	}
}

one() { # VERB NAME
	known "${2:-}"
	lock
	{ find_set && [[ -e $home/$2/created ]]; } || fail "$2 is not up: scripts/services.sh up $2"
	case $1 in
	stop) end "$([[ $2 == postgres ]] && echo INT || echo TERM)" "$STOP_SECONDS" "$2" ;;
	kill) end KILL 0 "$2" ;;
	start) (bring_up "$2") ;;
	esac
}

main() {
	local command=${1:-}
	shift || true
	umask 022 # the servers' user reads what root fetches
	state=${CONNECTD_SERVICES_DIR:-$(dirname "${here%/services}")/.services}
	mkdir -p "$state/log"
	state=$(cd "$state" && pwd -P)
	log=$state/log
	set_cache
	case $command in
	up)
		up "$@"
		say services "up; for their addresses: eval \"\$(scripts/services.sh env)\""
		;;
	down) down ;;
	env) env_lines | for_shell ;;
	drivers)
		drivers
		printf '%s\n' "${driver_lines[@]}" | for_shell
		;;
	run)
		(($#)) || fail "run what?"
		run "$@"
		;;
	stop | kill | start) one "$command" "$@" ;;
	clock)
		{ find_set && [[ -e $home/clock ]]; } || fail "no server has a clock of its own: CONNECTD_SERVICES_CLOCK"
		set_clock "${1:-}"
		;;
	rabbitmqctl)
		{ find_set && alive rabbitmq; } || fail "rabbitmq is not up"
		set_user rabbitmq
		fetch rabbitmq
		cd "$home/rabbitmq"
		# A container beside the server's needs a name of its own.
		"${unprivileged[@]/#--name=*/--name=connectd-$$}" env -i "${clean[@]}" "$rabbitmq_bin/rabbitmqctl" "$@"
		;;
	*)
		usage >&2
		exit 2
		;;
	esac
}

main "$@"
