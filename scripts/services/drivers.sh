# shellcheck shell=bash
# Drivers of databases for the languages that docs/consumers.md has beside Go: from PyPI and npm, in the versions and with
# the checksums of drivers.requirements.txt and drivers.package-lock.json. Python and Node are the machine's; where they
# are missing they are installed.

drivers_fetch() {
	local version
	command -v python3 >/dev/null || install_on_machine python3
	find_tree drivers "$(python3 --version)" # compiled drivers are for one version of it
}

drivers_unpack() {
	local need=()
	python3 -m pip --version >/dev/null 2>&1 || need+=(python3-pip)
	command -v npm >/dev/null || need+=(nodejs npm)
	((${#need[@]} == 0)) || install_on_machine "${need[@]}"
	mkdir -p "$tree/node"
	cp "$here/drivers.package.json" "$tree/node/package.json"
	cp "$here/drivers.package-lock.json" "$tree/node/package-lock.json"
	{
		timeout "$FETCH_SECONDS" python3 -m pip install --no-input --require-hashes --no-deps --only-binary :all: \
			--target "$tree/python" --requirement "$here/drivers.requirements.txt"
		timeout "$FETCH_SECONDS" npm ci --prefix "$tree/node" --ignore-scripts --no-audit --no-fund
	} </dev/null >>"$log/drivers.fetch.log" 2>&1
}

drivers_program_version() {
	PYTHONPATH=$tree/python python3 -c 'import psycopg, pymysql, sys; print("Python", sys.version)'
	NODE_PATH=$tree/node/node_modules node -e 'require("pg"), require("mysql2"), console.log("Node", process.version)'
}

# drivers: fetches them, and sets driver_lines to where they are, for the environment.
drivers() {
	(
		name=drivers doing=fetched words=fetch.log
		trap failed EXIT
		drivers_fetch
		trap - EXIT
	)
	local name=drivers
	drivers_fetch # again, for the variables it sets
	driver_lines=("CONNECTD_TEST_PYTHONPATH=$tree/python" "CONNECTD_TEST_NODE_PATH=$tree/node/node_modules")
}
