# shellcheck shell=bash
# Where the servers come from. Nothing is installed on the machine, but for Java and Maven where they are missing:
# packages are fetched by apt, which checks signatures and checksums, and unpacked in folders under $cache, one for each
# server; Kafka's jars are fetched by Maven and compared with kafka.sha256.
#
# A folder with a file VERSION is complete, and its program has run; one without it is what an interrupted run left.

FETCH_SECONDS=900

set_cache() { # the servers' user must be able to read it, so root's is not in root's home
	local default=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/connectd-services
	((EUID)) || default=/var/cache/connectd-services
	cache=${CONNECTD_SERVICES_CACHE:-$default}
	[[ -r /etc/os-release ]] || fail "there is no /etc/os-release"
	# shellcheck disable=SC1091 # the machine's own
	cache+=/$(. /etc/os-release && echo "$ID-${VERSION_ID:-unstable}")-$(uname -m)
	mkdir -p "$cache"
}

# in_tree NAME FILL VERSION: the folder $cache/NAME, filled by the function FILL when it is not there yet; the function
# VERSION prints the version of what is in it by running it. Several may ask for it at once, also from other clones.
in_tree() {
	local dir=$cache/$1
	[[ -e $dir/VERSION ]] && return
	exec 7>"$cache/$1.lock"
	flock -w "$FETCH_SECONDS" 7 || fail "another run has been fetching $1 for $FETCH_SECONDS s"
	if [[ ! -e $dir/VERSION ]]; then
		say "$1" "fetching"
		rm -rf "$dir"
		mkdir -m 755 "$dir"
		"$2" "$dir" || fail "cannot fetch $1"
		"$3" "$dir" >"$dir/VERSION.new" || fail "what was fetched for $1 does not run"
		mv "$dir/VERSION.new" "$dir/VERSION"
	fi
	exec 7>&-
}

# unpack DIR REPOSITORY PACKAGE...: the packages and all they need that the machine lacks.
unpack() {
	local dir=$1 repository=$2 deb
	shift 2
	"use_$repository"
	mkdir -p "$dir/debs/partial"
	apt "$repository" -o Dir::Cache::archives="$dir/debs" install --download-only --no-install-recommends "$@" ||
		# The index may be older than what the mirror still has.
		{ refresh "$repository" 0 && apt "$repository" -o Dir::Cache::archives="$dir/debs" \
			install --download-only --no-install-recommends "$@"; } || return
	for deb in "$dir"/debs/*.deb; do
		dpkg-deb --extract "$deb" "$dir" || return
	done
	rm -rf "$dir/debs"
	chmod 755 "$dir"
}

# libraries NAME: where the programs in the folder of that name find what they are linked with.
libraries() {
	local IFS=: all=("$cache/$1"/usr/lib/*-linux-gnu* "$cache/$1"/lib/*-linux-gnu*)
	echo "${all[*]}"
}

# The machine's own distribution. Our servers are struck from the list of what is installed, so that they are always
# fetched; what else they need is taken from the machine, if it is there.
use_distribution() {
	local new=$cache/distribution.apt/status.$BASHPID
	command -v apt-get dpkg-deb >/dev/null || fail "this needs Debian or Ubuntu: apt-get and dpkg-deb are not here"
	[[ -e $cache/distribution.apt/conf ]] || repository distribution '' ''
	awk -v RS= -v ORS='\n\n' '$2 !~ /^(postgresql|libpq|pgbouncer|mariadb|mysql|galera|erlang|rabbitmq)/' \
		/var/lib/dpkg/status >"$new"
	mv "$new" "$cache/distribution.apt/status"
	refresh distribution 360
}

# Debian's unstable suite, with nothing taken from the machine, from the mirror the machine uses. Its programs are run
# with its own C library.
use_unstable() {
	local site
	use_distribution
	site=$(apt-get -c "$cache/distribution.apt/conf" indextargets --format '$(REPO_URI)' \
		'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 'Component: main' | head -n 1)
	[[ $site ]] || fail "apt has no mirror of Debian in its sources"
	[[ -e $cache/unstable.apt/conf ]] || repository unstable \
		"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site sid main" /dev/null
	refresh unstable 360
}

# repository NAME SOURCE STATUS: apt's settings for it. An empty SOURCE stands for the machine's own sources.
repository() {
	local new=$cache/$1.apt.$BASHPID dir=$cache/$1.apt
	mkdir -p "$new/lists/partial" "$new/cache/archives/partial"
	{
		echo "Dir::State \"$dir\";"
		echo "Dir::State::Lists \"$dir/lists\";"
		echo "Dir::State::status \"${3:-$dir/status}\";"
		echo "Dir::Cache \"$dir/cache\";"
		if [[ $2 ]]; then
			echo "Dir::Etc::SourceList \"$dir/sources.list\";"
			echo 'Dir::Etc::SourceParts "/dev/null";'
			echo "$2" >"$new/sources.list"
		fi
		# It is for this user alone, and locked by us. What the machine does after an update is not for our folders.
		echo 'APT::Sandbox::User "root";'
		echo 'Debug::NoLocking "true";'
		echo '#clear APT::Update::Post-Invoke;'
		echo '#clear APT::Update::Post-Invoke-Success;'
		echo '#clear DPkg::Post-Invoke;'
		# Names and descriptions of the programs in packages are not needed.
		echo '#clear Acquire::IndexTargets::deb::DEP-11;'
		echo 'Acquire::Languages "none";'
		echo 'Acquire::Retries "3";'
		echo 'Acquire::http::Timeout "30";'
		echo 'Acquire::https::Timeout "30";'
	} >"$new/conf"
	mv -T "$new" "$dir" 2>/dev/null || rm -rf "$new" # another run was faster
}

# refresh REPOSITORY MINUTES: its index is not older than that.
refresh() {
	local dir=$cache/$1.apt
	(
		flock -w "$FETCH_SECONDS" 7 || fail "another run has been updating $1 for $FETCH_SECONDS s"
		[[ -z $(find "$dir/updated" -mmin "-$2" 2>/dev/null) ]] || exit 0
		apt "$1" update && touch "$dir/updated"
	) 7>"$dir/lock"
}

apt() {
	local conf=$cache/$1.apt/conf
	shift
	DEBIAN_FRONTEND=noninteractive timeout "$FETCH_SECONDS" \
		apt-get -c "$conf" --yes --quiet "$@" </dev/null >>"$log/fetch.log" 2>&1
}

# Java 17 or later, of the machine. It and Maven are ordinary programs that start nothing: where they are missing they
# are installed.
find_java() {
	local each version
	for each in "${JAVA_HOME:-}/bin/java" "$(command -v java)" /usr/lib/jvm/*/bin/java; do
		version=$("$each" -version 2>&1 | sed -n 's/^[^"]*version "\([0-9]*\).*/\1/p') 2>/dev/null || continue
		if ((${version:-0} >= 17)); then
			java=$each
			return
		fi
	done
	return 1
}

install_on_machine() {
	local root=()
	((EUID)) && root=(sudo)
	say kafka "installing $* on this machine"
	"${root[@]}" apt-get update --quiet >>"$log/fetch.log" 2>&1 || true # one source of many may be down
	DEBIAN_FRONTEND=noninteractive timeout "$FETCH_SECONDS" \
		"${root[@]}" apt-get install --yes --quiet --no-install-recommends "$@" </dev/null >>"$log/fetch.log" 2>&1
}
