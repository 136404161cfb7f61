# shellcheck shell=bash
# Databases with a clock of their own: libfaketime stands between them and the system. It reads $home/clock whenever they
# look at the clock, so that it jumps for all processes of a server at once. Only the time of day is off: what they measure
# and wait for by other clocks is as it was. MySQL becomes fifty times slower by it, so it has the machine's clock.

set_clock() { # SECONDS
	[[ $1 =~ ^[+-][0-9]+(\.[0-9]+)?$ ]] || fail "a clock is off by seconds, as +600 or -0.5, not by '$1'"
	echo "$1" >"$home/clock.new"
	chmod 644 "$home/clock.new"
	mv "$home/clock.new" "$home/clock"
}

own_clock() {
	local tree version
	[[ -e $home/clock && " postgres mariadb " == *" $name "* ]] || return 0
	[[ ! -e $home/$name.container ]] || fail "it runs in a container, where its clock cannot be set"
	find_tree faketime
	echo "$version" >"$home/clock.version"
	clean+=(
		LD_PRELOAD="$(echo "$tree"/usr/lib/*-linux-gnu*/faketime/libfaketimeMT.so.1)"
		FAKETIME_TIMESTAMP_FILE="$home/clock" FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1
	)
}

faketime_unpack() { unpack distribution libfaketime; }

faketime_program_version() {
	zcat "$tree/usr/share/doc/libfaketime/changelog.Debian.gz" | sed -n '1s/^\([a-z]*\) (\([^)]*\)).*/lib\1 \2/p'
}
