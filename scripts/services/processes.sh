# shellcheck shell=bash
# One set of servers has a folder of its own, $home, whose name is the first of its ten ports:
# /tmp/connectd-services-UID/20160. Each server has a folder in it, and beside that a file NAME.pid with its process and
# when that started, so that a number that was given to another process is never killed.

SETS=/tmp/connectd-services-$EUID
GONE_SECONDS=10

# open_set: finds the set of this state folder, or makes one. Two never get the same.
open_set() {
	local base owner
	(umask 022 && mkdir -p "$SETS")
	[[ -O $SETS && ! -L $SETS ]] || fail "$SETS belongs to somebody else"
	exec 8>"$SETS/lock"
	flock -w 60 8 || fail "$SETS/lock is held by another run"
	remove_abandoned
	if ! find_set; then
		base=$(free_ports) || fail "no ten free ports in a row between 20000 and 29999"
		owner=${CONNECTD_SERVICES_OWNER:-}
		mkdir -m 711 "$SETS/$base"
		{
			echo "$state"
			[[ -z $owner ]] || echo "$owner $(started "$owner")"
		} >"$SETS/$base/owner"
		(umask 077 && od -An -N12 -tx1 /dev/urandom | tr -d ' \n' >"$SETS/$base/password")
		ln -sfn "$SETS/$base" "$state/set"
		find_set
	fi
	exec 8>&-
}

find_set() { # fails when this state folder has none
	home=$(readlink "$state/set") || return
	[[ -O $home/password && $(head -n 1 "$home/owner") == "$state" ]] || return
	password=$(<"$home/password")
	local first=${home##*/}
	postgres_port=$first
	pgbouncer_port=$((first + 1))
	mysql_port=$((first + 2))
	mariadb_port=$((first + 3))
	rabbitmq_port=$((first + 4))
	rabbitmq_management_port=$((first + 5))
	rabbitmq_node_port=$((first + 6))
	rabbitmq_registry_port=$((first + 7))
	kafka_port=$((first + 8))
	kafka_controller_port=$((first + 9))
}

close_set() { # when no server of it is left
	compgen -G "$home/*.pid" >/dev/null || rm -rf "$home" "$state/set"
}

sweep() { [[ ! -O $SETS || -L $SETS ]] || (flock -w 60 8 && remove_abandoned) 8>"$SETS/lock"; }

# remove_abandoned: ends the sets whose state folder is gone, or whose owner died without a word.
remove_abandoned() {
	local home each owner begin state_of_it
	for home in "$SETS"/[0-9]*; do
		[[ -O $home ]] || continue
		{ read -r state_of_it && read -r owner begin; } 2>/dev/null <"$home/owner" || owner=
		if [[ $(readlink "${state_of_it:-/}/set") != "$home" ]] || [[ $owner && $(started "$owner") != "$begin" ]]; then
			for each in "${ALL[@]}"; do discard "$each"; done
			[[ $(readlink "${state_of_it:-/}/set") != "$home" ]] || rm -f "$state_of_it/set"
			rm -rf "$home"
			[[ $state_of_it != */.services/run-* ]] || rm -rf "$state_of_it"
		fi
	done
}

# free_ports: the first of ten ports that nobody has, below those the kernel gives to outgoing connections.
free_ports() {
	local used base try
	used=$(awk '$2 ~ /:/ { sub(/.*:/, "", $2); print $2 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null |
		while read -r hex; do echo " $((16#$hex)) "; done)
	for ((try = 0; try < 1000; try++)); do
		base=$((20000 + 10 * (RANDOM % 1000)))
		[[ -e $SETS/$base || $used == *" ${base%?}"[0-9]" "* ]] || {
			echo "$base"
			return
		}
	done
	return 1
}

# spawn NAME: the server as a process of its own session, as a user without rights where we are root. NAME_run replaces
# itself with the server by `become`.
spawn() {
	local pid
	rm -f "$home/$1.pid"
	(
		exec 7>&- 8>&- 9>&- </dev/null >>"$log/$1.log" 2>&1
		ulimit -c 0
		cd "$home/$1"
		pid=$BASHPID
		echo "$pid $(started "$pid")" >"$home/$1.new"
		mv "$home/$1.new" "$home/$1.pid"
		"$1_run"
	) &
}

become() { # [NAME=VALUE...] COMMAND...
	exec setsid "${unprivileged[@]}" env -i "${clean[@]}" "$@"
}

run_as_server() { # the same, but it comes back; in the server's folder, with its words in the server's log
	(cd "$home/$name" && timeout "$START_SECONDS" "${unprivileged[@]}" env -i "${clean[@]}" "$@") >>"$log/$name.log" 2>&1
}

# set_user NAME: whom the server runs as, and all it sees of our environment.
set_user() {
	name=$1
	unprivileged=()
	((EUID)) || unprivileged=(setpriv --reuid="$(id -u nobody)" --regid="$(id -g nobody)" --clear-groups)
	clean=(PATH="$PATH" LANG=C.UTF-8 HOME="$home/$1" TMPDIR="$home/$1/tmp")
}

started() { # PID: when it started; nothing when there is no such process, or only its remains
	local stat
	{ stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 0
	read -ra stat <<<"${stat##*) }"
	[[ ${stat[0]} == Z ]] || echo "${stat[19]}"
}

alive() { # NAME
	local pid begin
	read -r pid begin 2>/dev/null <"$home/$1.pid" && [[ $begin && $(started "$pid") == "$begin" ]]
}

family() { # PID...: they and all their descendants, each as PID:START
	{ cat /proc/[0-9]*/stat 2>/dev/null || true; } | awk -v roots="$*" '
		{ pid = $1; sub(/^.*\) /, ""); parent[pid] = $2; start[pid] = $20 }
		END {
			split(roots, r, " "); for (i in r) todo[++n] = r[i]
			for (i = 1; i <= n; i++) {
				if (todo[i] in start) print todo[i] ":" start[todo[i]]
				for (p in parent) if (parent[p] == todo[i]) todo[++n] = p
			}
		}'
}

# frozen PID...: the same, after all of them were stopped, so that none can have started another meanwhile.
frozen() {
	local all='' next each
	while next=$(family "$@") && [[ $next != "$all" ]]; do
		all=$next
		for each in $all; do kill -STOP "${each%:*}" 2>/dev/null || true; done
	done
	echo "$all"
}

# residents NAME: the processes that work in the server's folder, whosever children they are by now.
residents() {
	find /proc/[0-9]*/cwd -maxdepth 0 \( -lname "$home/$1" -o -lname "$home/$1/*" \) -printf '%h\n' 2>/dev/null |
		sed 's,/proc/,,' || true
}

# end SIGNAL SECONDS NAME: asks the server to end, waits so long, kills what is left and waits until all of it is gone. With
# KILL it has no say.
end() {
	local pid='' begin all='' deadline
	if read -r pid begin 2>/dev/null <"$home/$3.pid"; then
		all=$pid:$begin
		if [[ $1 != KILL ]] && alive "$3"; then
			all=$(family "$pid")
			deadline=$((SECONDS + $2))
			send "$1" "$3" "$pid"
			while alive "$3" && ((SECONDS < deadline)); do sleep 0.05; done
		fi
		alive "$3" || pid=
	fi
	remove_container "$3"
	# shellcheck disable=SC2046 # numbers
	kill_all "$all $(frozen $pid $(residents "$3"))"
	rm -f "$home/$3.pid"
	! declare -F "$3_ended" >/dev/null || "$3_ended"
}

# discard NAME: its data is not needed any more.
discard() {
	end KILL 0 "$1"
	rm -rf "${home:?}/$1" "$home/$1.container"
}

kill_all() { # PID:START...
	local each deadline=$((SECONDS + GONE_SECONDS))
	for each in $1; do
		[[ $(started "${each%:*}") != "${each#*:}" ]] || kill -KILL "${each%:*}" 2>/dev/null || true
	done
	for each in $1; do
		while [[ $(started "${each%:*}") == "${each#*:}" ]]; do
			((SECONDS < deadline)) || fail "process ${each%:*} is still there $GONE_SECONDS s after it was killed"
			sleep 0.05
		done
		rm -f "/dev/shm/faketime_shm_${each%:*}" "/dev/shm/sem.faketime_sem_${each%:*}" # what libfaketime leaves
	done
	# Each of PostgreSQL's kinds of server marks its data as in use by 56 bytes of shared memory, which outlive it when it
	# is killed.
	awk -v killed="${1//$'\n'/ }" '
		BEGIN { for (i = split(killed, each); i; i--) { sub(/:.*/, "", each[i]); pid[each[i]] } }
		$4 == 56 && $7 == 0 && $5 in pid { print $2 }' /proc/sysvipc/shm | while read -r each; do ipcrm -m "$each"; done
}

# ask PORT BYTES COUNT: sends BYTES, written as for printf, and prints the first COUNT bytes of the answer in hex.
ask() {
	# shellcheck disable=SC2016 # for the inner shell
	BYTES=$2 timeout 5 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" && printf "$BYTES" >&3 && head -c "$1" <&3 | od -An -v -tx1' \
		"$1" "$3" 2>/dev/null | tr -d ' \n'
}
