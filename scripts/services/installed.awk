# The packages that the machine has, as dpkg's status file lists them, without those that the tests' servers are made of and
# without all that depends on these: what is left is consistent, and apt takes the rest as not installed.

BEGIN { RS = ""; FS = "\n"; ORS = "\n\n" }

{
	record[NR] = $0
	for (i = 1; i <= NF; i++) {
		field = $i
		sub(/:.*/, "", field)
		if (field == "Package") name[NR] = substr($i, 10)
		if (field == "Provides") provides[NR] = names($i)
		if (field == "Depends" || field == "Pre-Depends") depends[NR] = depends[NR] names($i)
	}
	if (name[NR] ~ /^(postgresql|libpq|pgbouncer|mariadb|mysql|galera|erlang|rabbitmq|shellcheck)/ ||
	    $0 !~ /\nStatus: install ok installed\n/) strike(NR)
}

END {
	do {
		more = 0
		for (r = 1; r <= NR; r++) {
			n = split(depends[r], each, " ")
			for (i = 1; i <= n && !struck[r]; i++) if (each[i] in gone) more = strike(r)
		}
	} while (more)
	for (r = 1; r <= NR; r++) if (!struck[r]) print record[r]
}

function strike(r,    n, i, each) {
	struck[r] = 1
	gone[name[r]]
	n = split(provides[r], each, " ")
	for (i = 1; i <= n; i++) gone[each[i]]
	return 1
}

# "Depends: a (>= 1) | b:any, c" gives "a b c ".
function names(line) {
	sub(/^[^:]*: */, "", line)
	gsub(/\([^)]*\)|:[a-z0-9]+/, "", line)
	gsub(/[,| ]+/, " ", line)
	return line " "
}
