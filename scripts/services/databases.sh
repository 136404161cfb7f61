# shellcheck shell=bash
# For each server NAME: NAME_fetch gets its program, NAME_create makes its settings and data in $home/NAME, NAME_run
# becomes the server, NAME_ready succeeds when it answers, NAME_version and NAME_env print. Memory is kept small; how
# safely they write is left as it is.

postgres_fetch() {
	in_tree postgres postgres_unpack postgres_program_version
	postgres_bin=$(echo "$cache"/postgres/usr/lib/postgresql/*/bin)
	clean+=(LD_LIBRARY_PATH="$(libraries postgres)")
}

postgres_unpack() { unpack "$1" distribution postgresql pgbouncer; }

postgres_program_version() {
	LD_LIBRARY_PATH=$(libraries postgres) "$1"/usr/lib/postgresql/*/bin/postgres --version |
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

sql_answers() { # PORT
	PGPASSWORD=$password PGCONNECT_TIMEOUT=5 LD_LIBRARY_PATH=$(libraries postgres) \
		"$postgres_bin/psql" --no-psqlrc --quiet --tuples-only --host=127.0.0.1 --port="$1" --username=connectd \
		--dbname=connectd --command='SELECT 1' >/dev/null 2>&1
}

postgres_version() { cat "$cache/postgres/VERSION"; }

postgres_env() {
	echo "CONNECTD_TEST_POSTGRES_DSN=postgres://connectd:$password@127.0.0.1:$postgres_port/connectd?sslmode=disable"
}

# A server that was killed leaves the few bytes of shared memory that tell another one that it runs, and a file with its
# number, which another one believes as long as the system has not forgotten the dead process. We know that it is gone.
postgres_ended() {
	local file=$home/postgres/data/postmaster.pid id
	[[ -e $file ]] || return 0
	id=$(sed -n '7s/.* //p' "$file")
	[[ -z $id ]] || ipcrm -m "$id" 2>/dev/null || true
	rm -f "$file"
}

# PgBouncer takes any database and hands each transaction to any of a few connections.
pgbouncer_fetch() { postgres_fetch; }

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

pgbouncer_run() { become "$cache/postgres/usr/sbin/pgbouncer" pgbouncer.ini; }

pgbouncer_ready() { sql_answers "$pgbouncer_port"; }

pgbouncer_version() {
	LD_LIBRARY_PATH=$(libraries postgres) "$cache/postgres/usr/sbin/pgbouncer" --version |
		head -n 1
}

pgbouncer_env() {
	echo "CONNECTD_TEST_PGBOUNCER_DSN=postgres://connectd:$password@127.0.0.1:$pgbouncer_port/connectd?sslmode=disable"
}

# Debian's stable releases have no MySQL; its unstable suite has. Ubuntu has it in each release.
mysql_fetch() {
	in_tree mysql mysql_unpack mysql_program_version
	mysql=("$cache/mysql/usr/sbin/mysqld")
	if [[ -e $cache/mysql/loader ]]; then
		mysql=("$(<"$cache/mysql/loader")" --library-path "$(libraries mysql)" "${mysql[@]}")
	else
		clean+=(LD_LIBRARY_PATH="$(libraries mysql)")
	fi
	mysql+=(
		--no-defaults --basedir="$cache/mysql/usr" --plugin-dir="$cache/mysql/usr/lib/mysql/plugin"
		--lc-messages-dir="$cache/mysql/usr/share/mysql" --datadir="$home/mysql/data" --tmpdir="$home/mysql/tmp"
		--secure-file-priv= --mysqlx=OFF
	)
}

mysql_unpack() {
	use_distribution || return
	if apt-cache -c "$cache/distribution.apt/conf" show default-mysql-server-core 2>/dev/null |
		grep -q '^Depends:.*mysql-server-core-'; then
		unpack "$1" distribution default-mysql-server-core
	else
		unpack "$1" unstable mysql-server-core && echo "$1"/usr/lib/*-linux-gnu*/ld-linux-*.so.* >"$1/loader"
	fi
}

mysql_program_version() {
	if [[ -e $1/loader ]]; then
		"$(<"$1/loader")" --library-path "$(libraries mysql)" "$1/usr/sbin/mysqld" --no-defaults --version
	else
		LD_LIBRARY_PATH=$(libraries mysql) "$1/usr/sbin/mysqld" --no-defaults --version
	fi | sed 's/.* Ver \([0-9.]*\).*/MySQL \1/'
}

mysql_create() {
	mysql_family_users >"$home/mysql/users.sql"
	run_as_server "${mysql[@]}" --initialize-insecure --innodb-redo-log-capacity=32M
}

mysql_run() {
	become "${mysql[@]}" --port="$mysql_port" --bind-address=127.0.0.1 --socket="$home/mysql/socket" \
		--init-file="$home/mysql/users.sql" --max-connections=200 --max-connect-errors=1000000 \
		--performance-schema=OFF --innodb-buffer-pool-size=64M --innodb-log-buffer-size=8M \
		--innodb-redo-log-capacity=32M --table-open-cache=400
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

mysql_ready() { greets "$mysql_port"; }

# The first packet of the protocol is the server's: three bytes of length, a number, the version of the protocol, 10, and
# the server's as text. See MySQL's manual of its protocol, HandshakeV10.
greets() { [[ $(ask "$1" '' 5) == ??0000000a ]]; }

mysql_version() { cat "$cache/mysql/VERSION"; }

mysql_env() { echo "CONNECTD_TEST_MYSQL_DSN=connectd:$password@tcp(127.0.0.1:$mysql_port)/connectd"; }

mariadb_fetch() {
	in_tree mariadb mariadb_unpack mariadb_program_version
	clean+=(LD_LIBRARY_PATH="$(libraries mariadb)")
	mariadb=(
		"$cache/mariadb/usr/sbin/mariadbd" --no-defaults --basedir="$cache/mariadb/usr"
		--lc-messages-dir="$cache/mariadb/usr/share/mysql" --plugin-dir="$cache/mariadb/usr/lib/mysql/plugin"
		--datadir="$home/mariadb/data" --tmpdir="$home/mariadb/tmp" --innodb-log-file-size=32M
	)
}

mariadb_unpack() { unpack "$1" distribution mariadb-server-core; }

mariadb_program_version() {
	LD_LIBRARY_PATH=$(libraries mariadb) "$1/usr/sbin/mariadbd" --no-defaults --version |
		sed 's/.* Ver \([0-9.]*\).*/MariaDB \1/'
}

# As mariadb-install-db does it, which needs programs of other packages.
mariadb_create() {
	local sql=$cache/mariadb/usr/share/mysql
	mysql_family_users >"$home/mariadb/users.sql"
	{
		echo 'CREATE DATABASE IF NOT EXISTS mysql;'
		echo 'USE mysql;'
		echo "SET @auth_root_socket = 'root';"
		cat "$sql/mysql_system_tables.sql" "$sql/mysql_performance_tables.sql" "$sql/mysql_system_tables_data.sql"
	} >"$home/mariadb/bootstrap.sql"
	run_as_server "${mariadb[@]}" --bootstrap --skip-log-bin <"$home/mariadb/bootstrap.sql"
}

mariadb_run() {
	become "${mariadb[@]}" --port="$mariadb_port" --bind-address=127.0.0.1 --socket="$home/mariadb/socket" \
		--init-file="$home/mariadb/users.sql" --max-connections=200 --max-connect-errors=1000000 \
		--innodb-buffer-pool-size=64M
}

mariadb_ready() { greets "$mariadb_port"; }

mariadb_version() { cat "$cache/mariadb/VERSION"; }

mariadb_env() { echo "CONNECTD_TEST_MARIADB_DSN=connectd:$password@tcp(127.0.0.1:$mariadb_port)/connectd"; }
