# shellcheck shell=bash
# For each server NAME: NAME_fetch gets its programs, NAME_create makes its settings and data in $home/NAME, NAME_run
# becomes the server, NAME_ready succeeds when it answers, NAME_env prints its addresses. Memory is kept small; how safely
# they write is left as it is.

postgres_fetch() {
	find_tree postgres
	postgres_bin=$(echo "$tree"/usr/lib/postgresql/*/bin)
	clean+=(LD_LIBRARY_PATH="$(libraries)")
	psql=(env LD_LIBRARY_PATH="$(libraries)" "$postgres_bin/psql")
}

postgres_unpack() { unpack distribution postgresql; }

postgres_program_version() {
	LD_LIBRARY_PATH=$(libraries) "$tree"/usr/lib/postgresql/*/bin/postgres --version |
		sed 's/.*) \([0-9.]*\).*/PostgreSQL \1/'
}

postgres_create() {
	echo "$password" >"$home/postgres/password"
	run_as_server "$postgres_bin/initdb" --pgdata=data --username=connectd --pwfile=password --auth=scram-sha-256 \
		--encoding=UTF8 --locale=C.UTF-8 --no-sync
	# No socket, and nothing outside the folder: what is left of a killed server goes with it.
	cat >>"$home/postgres/data/postgresql.conf" <<-CONF
		listen_addresses = '127.0.0.1'
		port = $postgres_port
		unix_socket_directories = ''
		dynamic_shared_memory_type = mmap
		max_connections = 200
		shared_buffers = 64MB
		jit = off
		timezone = 'UTC'
		log_timezone = 'UTC'
	CONF
	run_as_server "$postgres_bin/postgres" --single -D data postgres <<<'CREATE DATABASE connectd'
}

postgres_run() { become "$postgres_bin/postgres" -D data; }

postgres_ready() { sql_answers "$postgres_port"; }

sql_answers() ( # PORT
	unset "${!PG@}"
	export PGPASSWORD=$password
	timeout 5 "${psql[@]}" --no-psqlrc --quiet --tuples-only --host=127.0.0.1 --port="$1" --username=connectd \
		--dbname=connectd --command='SELECT 1' >/dev/null 2>&1
)

postgres_env() {
	echo "CONNECTD_TEST_POSTGRES_DSN=postgres://connectd:$password@127.0.0.1:$postgres_port/connectd?sslmode=disable"
}

# What another one would believe as long as the system has not forgotten the dead process.
postgres_ended() { rm -f "$home/postgres/data/postmaster.pid"; }

# PgBouncer takes any database and hands each transaction to any of a few connections.
pgbouncer_fetch() {
	postgres_fetch # for its client
	find_tree pgbouncer
	pgbouncer=$tree/usr/sbin/pgbouncer
	clean+=(LD_LIBRARY_PATH="$(libraries)")
}

pgbouncer_unpack() { unpack distribution pgbouncer; }

pgbouncer_program_version() { LD_LIBRARY_PATH=$(libraries) "$tree/usr/sbin/pgbouncer" --version | sed -n 1p; }

pgbouncer_create() {
	echo "\"connectd\" \"$password\"" >"$home/pgbouncer/users"
	cat >"$home/pgbouncer/pgbouncer.ini" <<-CONF
		[databases]
		* = host=127.0.0.1 port=$postgres_port
		[pgbouncer]
		listen_addr = 127.0.0.1
		listen_port = $pgbouncer_port
		unix_socket_dir =
		auth_type = scram-sha-256
		auth_file = users
		pool_mode = transaction
		default_pool_size = 20
		max_client_conn = 500
		server_login_retry = 1
	CONF
}

pgbouncer_run() { become "$pgbouncer" pgbouncer.ini; }

pgbouncer_ready() { sql_answers "$pgbouncer_port"; }

pgbouncer_env() {
	echo "CONNECTD_TEST_PGBOUNCER_DSN=postgres://connectd:$password@127.0.0.1:$pgbouncer_port/connectd?sslmode=disable"
}

# Debian's stable releases have no MySQL; its unstable suite has. Ubuntu has it in each release.
mysql_fetch() {
	find_tree mysql
	mysqld=("$tree/usr/sbin/mysqld")
	if [[ -e $tree/loader ]]; then
		mysqld=("$(<"$tree/loader")" --library-path "$(libraries)" "${mysqld[@]}")
	else
		clean+=(LD_LIBRARY_PATH="$(libraries)")
	fi
	mysqld+=(
		--no-defaults --basedir="$tree/usr" --plugin-dir="$tree/usr/lib/mysql/plugin"
		--lc-messages-dir="$tree/usr/share/mysql"
	)
}

mysql_unpack() {
	local default
	use_distribution
	default=$(apt-cache -c "$cache/distribution.apt/conf" show default-mysql-server-core 2>/dev/null) || true
	if [[ $default == *"Depends: mysql-server-core-"* ]]; then
		unpack distribution default-mysql-server-core
	else
		unpack unstable mysql-server-core
		echo "$tree"/usr/lib/*-linux-gnu*/ld-linux-*.so.* >"$tree/loader"
	fi
}

mysql_program_version() {
	if [[ -e $tree/loader ]]; then
		"$(<"$tree/loader")" --library-path "$(libraries)" "$tree/usr/sbin/mysqld" --no-defaults --version
	else
		LD_LIBRARY_PATH=$(libraries) "$tree/usr/sbin/mysqld" --no-defaults --version
	fi | sed 's/.* Ver \([0-9.]*\).*/MySQL \1/'
}

mysql_create() {
	mysql_family_users >"$home/mysql/users.sql"
	run_as_server "${mysqld[@]}" --datadir="$home/mysql/data" --tmpdir="$home/mysql/tmp" --innodb-redo-log-capacity=32M \
		--initialize-insecure
}

mysql_run() {
	mysql_family_tls mysql
	become "${mysqld[@]}" --datadir="$home/mysql/data" --tmpdir="$home/mysql/tmp" --innodb-redo-log-capacity=32M \
		--port="$mysql_port" --mysqlx=OFF --bind-address=127.0.0.1 --socket="$home/mysql/socket" --secure-file-priv= \
		--init-file="$home/mysql/users.sql" --max-connections=200 --max-connect-errors=1000000 \
		--max-allowed-packet=64M --performance-schema=OFF --innodb-buffer-pool-size=64M --innodb-log-buffer-size=8M --table-open-cache=400 \
		"${tls[@]}"
}

# Read at each start. Everything that a test could want to do is allowed.
mysql_family_users() {
	cat <<-SQL
		CREATE DATABASE IF NOT EXISTS connectd;
		CREATE USER IF NOT EXISTS connectd@'%' IDENTIFIED BY '$password';
		GRANT ALL PRIVILEGES ON *.* TO connectd@'%' WITH GRANT OPTION;
		DROP USER IF EXISTS root@localhost;
	SQL
}

# mysql_family_tls NAME: with a certificate, the server refuses whoever does not speak TLS. Its user may not be the one that
# owns the files.
mysql_family_tls() {
	tls=()
	[[ ${CONNECTD_SERVICES_TLS:-} ]] || return 0
	install -m 444 "$CONNECTD_SERVICES_TLS/cert.pem" "$CONNECTD_SERVICES_TLS/key.pem" "$home/$1"
	tls=(--ssl-cert="$home/$1/cert.pem" --ssl-key="$home/$1/key.pem" --require-secure-transport=ON)
}

mysql_ready() { greets "$mysql_port"; }

mysql_ended() { rm -f "$home"/mysql/socket*; }

# The first packet of the protocol is the server's: three bytes of length, a number, the version of the protocol, 10, and
# the server's as text. See MySQL's manual of its protocol, HandshakeV10.
greets() { [[ $(ask "$1" '' 5) == ??0000000a ]]; }

mysql_env() { echo "CONNECTD_TEST_MYSQL_DSN=connectd:$password@tcp(127.0.0.1:$mysql_port)/connectd"; }

mariadb_fetch() {
	find_tree mariadb
	mariadb_share=$(echo "$tree"/usr/share/m*/charsets) # mysql or, since MariaDB 11, mariadb
	mariadb_share=${mariadb_share%/charsets}
	clean+=(LD_LIBRARY_PATH="$(libraries)")
	mariadbd=(
		"$tree/usr/sbin/mariadbd" --no-defaults --basedir="$tree/usr" --plugin-dir="$tree/usr/lib/mysql/plugin"
		--lc-messages-dir="$mariadb_share" --character-sets-dir="$mariadb_share/charsets"
	)
}

mariadb_unpack() { unpack distribution mariadb-server-core; }

mariadb_program_version() {
	LD_LIBRARY_PATH=$(libraries) "$tree/usr/sbin/mariadbd" --no-defaults --version |
		sed 's/.* Ver \([0-9.]*\).*/MariaDB \1/'
}

# As mariadb-install-db does it, which needs programs of other packages.
mariadb_create() {
	local each
	mysql_family_users >"$home/mariadb/users.sql"
	{
		echo 'CREATE DATABASE IF NOT EXISTS mysql;'
		echo 'USE mysql;'
		echo "SET @auth_root_socket = 'root';"
		for each in system_tables performance_tables system_tables_data; do
			cat "$mariadb_share"/m*_$each.sql
		done
	} >"$home/mariadb/bootstrap.sql"
	run_as_server "${mariadbd[@]}" --datadir="$home/mariadb/data" --innodb-log-file-size=32M --bootstrap \
		<"$home/mariadb/bootstrap.sql"
}

mariadb_run() {
	mysql_family_tls mariadb
	become "${mariadbd[@]}" --datadir="$home/mariadb/data" --tmpdir="$home/mariadb/tmp" --innodb-log-file-size=32M \
		--port="$mariadb_port" --bind-address=127.0.0.1 --socket="$home/mariadb/socket" \
		--init-file="$home/mariadb/users.sql" --max-connections=200 --max-connect-errors=1000000 \
		--max-allowed-packet=64M --innodb-buffer-pool-size=64M "${tls[@]}"
}

mariadb_ready() { greets "$mariadb_port"; }

mariadb_env() { echo "CONNECTD_TEST_MARIADB_DSN=connectd:$password@tcp(127.0.0.1:$mariadb_port)/connectd"; }
