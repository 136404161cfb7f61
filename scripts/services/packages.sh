# shellcheck shell=bash
# Where the servers come from. Nothing is installed on the machine, but for Java, Maven, Python and Node where they are missing:
# packages are fetched by apt, which checks signatures and checksums, and unpacked in folders under $cache, one for each
# server; Kafka's jars are fetched by Maven and compared with kafka.sha256.

FETCH_SECONDS=900

say() { printf '%-10s %s\n' "$1:" "$2" >&2; }

fail() {
	say "${name:-services}" "$1"
	exit 1
}

set_cache() { # the servers' user must be able to read it, so root's is not in root's home
	local default=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/connectd-services
	((EUID)) || default=/var/cache/connectd-services
	cache=${CONNECTD_SERVICES_CACHE:-$default}
	[[ -r /etc/os-release ]] || fail "there is no /etc/os-release"
	# shellcheck disable=SC1091 # the machine's own
	cache+=/$(. /etc/os-release && echo "$ID-${VERSION_ID:-unstable}")-$(uname -m)
	mkdir -p "$cache"
}

# find_tree NAME [FOR]: sets tree to the folder of the programs, which the function NAME_unpack fills when it is not there
# yet. NAME_program_version prints the version of what is in it by running it: a folder with that in its file VERSION is
# complete, one without it is what an interrupted run left. The folder's name changes with what it is filled with, and
# with FOR. Several runs may want it at once, also from other clones.
find_tree() {
	tree=$cache/$1-$({ declare -f "$1_unpack" && cat "$here/$1".* 2>/dev/null || true; printf %s "${2-}"; } | cksum | cut -d ' ' -f 1)
	version=$(cat "$tree/VERSION" 2>/dev/null) && return
	exec 7>"$tree.lock"
	flock -w "$FETCH_SECONDS" 7 || fail "another run has been fetching it for $FETCH_SECONDS s"
	if [[ ! -e $tree/VERSION ]]; then
		say "$name" "fetching $1"
		rm -rf "$tree"
		mkdir -m 755 "$tree"
		"$1_unpack"
		"$1_program_version" >"$tree/VERSION.new" 2>>"$log/$name.fetch.log"
		mv "$tree/VERSION.new" "$tree/VERSION"
	fi
	exec 7>&-
	version=$(<"$tree/VERSION")
}

# unpack REPOSITORY PACKAGE...: into tree, the packages and all they need that the machine lacks.
unpack() {
	local repository=$1 deb
	shift
	"use_$repository"
	mkdir -p "$tree/debs/partial"
	# The index may be older than what the mirror still has.
	download "$repository" "$@" || {
		refresh "$repository" 0
		download "$repository" "$@"
	}
	for deb in "$tree"/debs/*.deb; do
		dpkg-deb --extract "$deb" "$tree"
	done
	rm -rf "$tree/debs"
	chmod 755 "$tree"
}

download() { apt "$1" -o Dir::Cache::archives="$tree/debs" install --download-only --no-install-recommends "${@:2}"; }

# libraries: where the programs in tree find what they are linked with.
libraries() {
	local IFS=: all=("$tree"/usr/lib/*-linux-gnu* "$tree"/lib/*-linux-gnu*)
	echo "${all[*]}"
}

# The machine's own distribution. The servers are always fetched, also those that are installed, whose settings and state
# are not ours; what else they need is taken from the machine, if it is there.
use_distribution() {
	local new=$cache/distribution.apt/status.$BASHPID
	command -v apt-get >/dev/null || fail "there is no apt-get: this is not Debian or Ubuntu"
	repository distribution '' ''
	awk -f "$here/installed.awk" /var/lib/dpkg/status >"$new"
	mv "$new" "$cache/distribution.apt/status"
	refresh distribution 360
}

# Debian's unstable suite, with nothing taken from the machine, from the mirror the machine uses. Its programs are run
# with its own C library.
use_unstable() {
	local site
	use_distribution
	site=$(apt-get -c "$cache/distribution.apt/conf" indextargets --format '$(REPO_URI)' \
		'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 'Component: main' | sed -n 1p)
	[[ $site ]] || fail "apt has no mirror of Debian in its sources"
	repository unstable \
		"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site sid main" /dev/null
	refresh unstable 360
}

# repository NAME SOURCE STATUS: apt's settings for it. An empty SOURCE stands for the machine's own sources, an empty STATUS
# for what use_distribution writes.
repository() {
	local dir=$cache/$1.apt new=$cache/$1.apt/new.$BASHPID
	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
	{
		echo "Dir::State \"$dir\";"
		echo "Dir::State::Lists \"$dir/lists\";"
		echo "Dir::State::status \"${3:-$dir/status}\";"
		echo "Dir::Cache \"$dir/cache\";"
		if [[ $2 ]]; then
			echo "Dir::Etc::SourceList \"$dir/sources.list\";"
			echo 'Dir::Etc::SourceParts "/dev/null";'
			echo "$2" >"$new"
			mv "$new" "$dir/sources.list"
		fi
		cat "$here/apt.conf"
	} >"$new.conf"
	mv "$new.conf" "$dir/conf"
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
		apt-get -c "$conf" --yes --quiet "$@" </dev/null >>"$log/$name.fetch.log" 2>&1
}

# Java 17 or later, of the machine. It and Maven, Python and Node are ordinary programs that start nothing: where they are
# missing they are installed.
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
	local step root=()
	((EUID == 0)) || root=(sudo)
	say "$name" "installing $* on this machine"
	for step in update "install --no-install-recommends $*"; do
		# shellcheck disable=SC2086 # words
		flock --close --timeout "$FETCH_SECONDS" "$cache/machine.lock" timeout "$FETCH_SECONDS" \
			"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --yes --quiet $step </dev/null \
			>>"$log/$name.fetch.log" 2>&1 || [[ $step == update ]] || return # one source of many may be down
	done
}

# A package manager that is killed would leave the machine's packages half installed.
let_installation_finish() {
	[[ ! -e $cache/machine.lock ]] || flock --timeout "$FETCH_SECONDS" "$cache/machine.lock" true
}
