# shellcheck shell=bash
# The brokers, as databases.sh has the databases.

rabbitmq_fetch() {
	find_tree rabbitmq
	rabbitmq_bin=$tree/usr/lib/rabbitmq/bin
	rabbitmq_epmd=$(echo "$tree"/usr/lib/erlang/erts-*/bin/epmd)
	clean+=(PATH="$tree/connectd:$PATH" LD_LIBRARY_PATH="$(libraries)")
	rabbitmq_settings
}

rabbitmq_settings() {
	clean+=(
		ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$rabbitmq_registry_port"
		RABBITMQ_NODENAME=connectd@localhost RABBITMQ_DIST_PORT="$rabbitmq_node_port"
		RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_CONFIG_FILE="$home/rabbitmq/rabbitmq.conf"
		RABBITMQ_ENABLED_PLUGINS_FILE="$home/rabbitmq/plugins" RABBITMQ_PID_FILE="$home/rabbitmq/pid"
		RABBITMQ_MNESIA_BASE="$home/rabbitmq/data" RABBITMQ_LOG_BASE="$home/rabbitmq" RABBITMQ_LOGS=-
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}'
	)
}

# Debian's erl knows only /usr/lib/erlang. It sets these four variables and runs erlexec. The tools look for it where they
# are themselves.
rabbitmq_unpack() {
	unpack distribution rabbitmq-server
	mkdir "$tree/connectd"
	ln -s ../usr/lib/erlang/bin/escript "$tree/connectd/escript"
	cat >"$tree/connectd/erl" <<-ERL
		#!/bin/sh
		export ROOTDIR=$tree/usr/lib/erlang BINDIR=$(echo "$tree"/usr/lib/erlang/erts-*/bin) EMU=beam PROGNAME=erl
		exec "\$BINDIR/erlexec" "\$@"
	ERL
	chmod 755 "$tree/connectd/erl"
}

rabbitmq_program_version() {
	local rabbit=("$tree"/usr/lib/rabbitmq/lib/rabbitmq_server-*)
	LD_LIBRARY_PATH=$(libraries) HOME=/ "$tree/connectd/erl" -noshell -eval \
		"io:format(\"RabbitMQ ${rabbit[0]##*-}, Erlang ~s~n\", [erlang:system_info(otp_release)]), halt()."
}

rabbitmq_create() {
	echo '[rabbitmq_management].' >"$home/rabbitmq/plugins"
	cat >"$home/rabbitmq/rabbitmq.conf" <<-CONF
		listeners.tcp.1 = 127.0.0.1:$rabbitmq_port
		management.tcp.ip = 127.0.0.1
		management.tcp.port = $rabbitmq_management_port
		default_user = connectd
		default_pass = $password
		log.console = true
		log.file = false
	CONF
}

# The server wants the registry of Erlang's nodes beside it and would start one that stays. This one is ended with it.
rabbitmq_run() {
	if [[ $rabbitmq_epmd ]]; then
		setsid "${unprivileged[@]}" env -i "${clean[@]}" \
			"$rabbitmq_epmd" -port "$rabbitmq_registry_port" -address 127.0.0.1 &
	fi
	# As under systemd the script makes way for the server instead of watching it.
	become RUNNING_UNDER_SYSTEMD=true "$rabbitmq_bin/rabbitmq-server"
}

# AMQP 0-9-1, section 4.2.2: the client sends the protocol's name, the server a frame of type 1 on channel 0.
rabbitmq_ready() {
	[[ $(ask "$rabbitmq_port" 'AMQP\0\0\11\1' 3) == 010000 ]] &&
		[[ $(ask "$rabbitmq_management_port" "GET /api/whoami HTTP/1.0\r\nAuthorization: Basic $(
			echo -n "connectd:$password" | base64)\r\n\r\n" 12) == "$(echo -n 'HTTP/1.1 200' | od -An -tx1 | tr -d ' ')" ]]
}

rabbitmq_env() {
	echo "CONNECTD_TEST_RABBITMQ_URL=amqp://connectd:$password@127.0.0.1:$rabbitmq_port/"
	echo "CONNECTD_TEST_RABBITMQ_MGMT_URL=http://connectd:$password@127.0.0.1:$rabbitmq_management_port"
}

kafka_fetch() {
	find_java || {
		install_on_machine openjdk-17-jre-headless || install_on_machine openjdk-21-jre-headless ||
			install_on_machine default-jre-headless || true
		find_java || fail "there is no Java 17 or later and it could not be installed"
	}
	find_tree kafka
	kafka_settings "$java" "$tree"
}

kafka_settings() { # JAVA JARS
	kafka=(
		"$1" -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData
		-Djava.io.tmpdir="$home/kafka/tmp" -Dlog4j2.configurationFile="$home/kafka/log4j2.properties"
		-Dkafka.logs.dir="$home/kafka" -cp "$2/*"
	)
}

kafka_unpack() {
	command -v mvn >/dev/null || install_on_machine maven
	{
		timeout "$FETCH_SECONDS" mvn --batch-mode --no-transfer-progress --strict-checksums \
			--file "$here/kafka.pom.xml" -DincludeScope=runtime -DoutputDirectory="$tree" \
			dependency:copy-dependencies </dev/null
		cd "$tree"
		sha256sum --check --strict --quiet "$here/kafka.sha256"
		diff <(LC_ALL=C ls -- *.jar) <(sed 's/.*  //' "$here/kafka.sha256")
		cd "$here"
	} >>"$log/kafka.fetch.log" 2>&1
}

kafka_program_version() {
	"$java" -cp "$tree/*" kafka.Kafka --version 2>/dev/null | sed 's/^\([0-9.]*\).*/Apache Kafka \1/'
}

kafka_create() {
	cat >"$home/kafka/log4j2.properties" <<-CONF
		rootLogger.level = warn
		rootLogger.appenderRef.console.ref = console
		appender.console.type = Console
		appender.console.name = console
		appender.console.layout.type = PatternLayout
		appender.console.layout.pattern = %d{ISO8601} %p %c: %m%n
	CONF
	# One node that is broker and controller. Its own topics have few partitions: each costs files and start-up time.
	cat >"$home/kafka/server.properties" <<-CONF
		process.roles = broker,controller
		node.id = 1
		listeners = PLAINTEXT://127.0.0.1:$kafka_port,CONTROLLER://127.0.0.1:$kafka_controller_port
		advertised.listeners = PLAINTEXT://127.0.0.1:$kafka_port,CONTROLLER://127.0.0.1:$kafka_controller_port
		listener.security.protocol.map = PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
		controller.listener.names = CONTROLLER
		controller.quorum.bootstrap.servers = 127.0.0.1:$kafka_controller_port
		log.dirs = $home/kafka/data
		num.network.threads = 2
		num.io.threads = 2
		log.cleaner.dedupe.buffer.size = 4194304
		offsets.topic.replication.factor = 1
		offsets.topic.num.partitions = 4
		transaction.state.log.replication.factor = 1
		transaction.state.log.min.isr = 1
		transaction.state.log.num.partitions = 4
		share.coordinator.state.topic.replication.factor = 1
		share.coordinator.state.topic.min.isr = 1
		share.coordinator.state.topic.num.partitions = 4
		group.initial.rebalance.delay.ms = 0
	CONF
	run_as_server "${kafka[@]}" kafka.tools.StorageTool format --standalone --config server.properties \
		--cluster-id Y29ubmVjdGQtdGVzdC0wMQ
}

kafka_run() { become "${kafka[@]}" kafka.Kafka server.properties; }

# ApiVersions, version 0, number 1, no client id. The answer: its length, the number, and no error. The broker answers
# when it has joined its cluster.
kafka_ready() {
	[[ $(ask "$kafka_port" '\0\0\0\12\0\22\0\0\0\0\0\1\377\377' 10) == ????????000000010000 ]]
}

kafka_env() { echo "CONNECTD_TEST_KAFKA_BROKERS=127.0.0.1:$kafka_port"; }
