#!/usr/bin/env bash
# Checks the shell scripts with ShellCheck: the machine's, or one that is fetched as the tests' servers are.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

shellcheck_unpack() { unpack distribution shellcheck; }

shellcheck_program_version() { LD_LIBRARY_PATH=$(libraries) "$tree/usr/bin/shellcheck" --version; }

if ! command -v shellcheck >/dev/null; then
	# shellcheck source=services/packages.sh
	. scripts/services/packages.sh
	name=shellcheck
	here=$PWD/scripts/services
	log=$(mktemp -d)
	trap 'cat "$log"/* >&2; rm -rf "$log"' EXIT
	set_cache
	find_tree shellcheck
	trap - EXIT
	rm -rf "$log"
	export PATH="$tree/usr/bin:$PATH" LD_LIBRARY_PATH
	LD_LIBRARY_PATH=$(libraries)
fi
shellcheck --external-sources scripts/*.sh .ci/run
