# shellcheck shell=bash
# Where a server's programs cannot be fetched, as on a machine without apt, and Docker or Podman runs, they are taken from
# an image. The container uses the machine's network and a folder of ours, so settings, ports and data are the same as
# without it; the process that we know is the engine's client, which lives as long as the container.

declare -A IMAGE=(
	[postgres]=docker.io/library/postgres:17
	[pgbouncer]=docker.io/edoburu/pgbouncer:latest
	[mysql]=docker.io/library/mysql:8.4
	[mariadb]=docker.io/library/mariadb:11.8
	[rabbitmq]=docker.io/library/rabbitmq:4-management
	[kafka]=docker.io/apache/kafka:4.3.1
)

find_engine() {
	for engine in docker podman; do
		timeout 30 "$engine" info >/dev/null 2>&1 && return
	done
	return 1
}

# fetch NAME: its programs, in one way or the other; the same one as before for a server that has data.
fetch() {
	local code=0
	if [[ ! -e $home/$1.container ]]; then
		(
			trap - EXIT
			"$1_fetch"
		) &
		wait $! || code=$?
		if ((code == 0)); then
			"$1_fetch" # again, for the variables it sets
			return
		fi
		find_engine || fail "it could not be fetched, and neither docker nor podman runs"
		say "$1" "using ${IMAGE[$1]} with $engine, since its programs could not be fetched ($log/$1.fetch.log)"
		"$engine" image inspect "${IMAGE[$1]}" >/dev/null 2>&1 ||
			timeout "$FETCH_SECONDS" "$engine" pull --quiet "${IMAGE[$1]}" >>"$log/$1.fetch.log" 2>&1
		echo "$engine" >"$home/$1.container"
	fi
	engine=$(<"$home/$1.container")
	contain "$1"
	"$1_contain"
	version=${IMAGE[$1]##*/}
}

# contain NAME: its commands run in containers that go when they end.
contain() {
	local user
	user=$(id -u):$(id -g)
	((EUID)) || user=$(id -u nobody):$(id -g nobody)
	unprivileged=(
		"$engine" run --rm --interactive --network=host --user="$user" --security-opt=label=disable
		--volume="$home/$1:$home/$1" --workdir="$home/$1" --entrypoint= --name="$(container "$1")"
	)
	[[ $engine == docker || $EUID == 0 ]] || unprivileged+=(--userns=keep-id)
	unprivileged+=("${IMAGE[$1]}")
	clean+=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
}

container() { echo "connectd-${home##*/}-$1"; } # NAME

# send SIGNAL NAME PID: to the server, whatever it runs in.
send() {
	if [[ ! -e $home/$2.container ]]; then
		kill -"$1" "$3" 2>/dev/null || true
	else
		"$(<"$home/$2.container")" kill --signal="$1" "$(container "$2")" >/dev/null 2>&1 || true
	fi
}

# remove_container NAME: at once; else Podman would ask the server to end and wait.
remove_container() {
	[[ -e $home/$1.container ]] || return 0
	send KILL "$1" ''
	"$(<"$home/$1.container")" rm --force "$(container "$1")" >/dev/null 2>&1 || true
}

# Where the images have their programs.

postgres_contain() {
	postgres_bin=/usr/lib/postgresql/17/bin
	psql=("$engine" run --rm --network=host --env=PGPASSWORD --entrypoint=psql "${IMAGE[postgres]}")
}

pgbouncer_contain() {
	postgres_contain
	pgbouncer=/usr/bin/pgbouncer
}

mysql_contain() { mysqld=(mysqld --no-defaults); }

mariadb_contain() {
	mariadbd=(mariadbd --no-defaults)
	mariadb_create() {
		mysql_family_users >"$home/mariadb/users.sql"
		run_as_server mariadb-install-db --no-defaults --datadir="$home/mariadb/data" --skip-test-db \
			--auth-root-authentication-method=socket
	}
}

# Here the server starts the registry of Erlang's nodes, which ends with the container.
rabbitmq_contain() {
	rabbitmq_bin=/opt/rabbitmq/sbin
	rabbitmq_epmd=
	clean+=(PATH=/opt/rabbitmq/sbin:/opt/erlang/bin:/usr/local/bin:/usr/bin:/bin)
	rabbitmq_settings
}

kafka_contain() { kafka_settings /opt/java/openjdk/bin/java /opt/kafka/libs; }
