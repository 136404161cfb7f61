package mysql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The oldest versions that have all we use: SKIP LOCKED, columns added at once, defaults that are expressions.
var (
	oldestMySQL   = [3]int{8, 0, 13}
	oldestMariaDB = [3]int{10, 6, 0}
)

// checkVersion says what keeps a server from being used, by what its VERSION() says.
func checkVersion(text string) error {
	name, oldest, number := "MySQL", oldestMySQL, text
	if strings.Contains(text, "MariaDB") {
		// MariaDB may put 5.5.5- before its version, for old replicas.
		name, oldest, number = "MariaDB", oldestMariaDB, strings.TrimPrefix(text, "5.5.5-")
	}
	if strings.Contains(text, "TiDB") {
		return fmt.Errorf("the server is TiDB (%s), which does not lock rows as MySQL does", text)
	}
	number, _, _ = strings.Cut(number, "-")
	var version [3]int
	parts := strings.Split(number, ".")
	for i := range version {
		if i >= len(parts) {
			break
		}
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return fmt.Errorf("the server's version is %q, which cannot be read", text)
		}
		version[i] = n
	}
	for i := range version {
		if version[i] > oldest[i] {
			return nil
		}
		if version[i] < oldest[i] {
			return fmt.Errorf("the server is %s %s, which is too old: %d.%d.%d or later is needed", name, number, oldest[0], oldest[1], oldest[2])
		}
	}
	return nil
}

// checkServer refuses a server that cannot be used, before anything is read that an old one would not understand.
func checkServer(ctx context.Context, q querier) error {
	var version string
	var logs bool
	if err := q.QueryRowContext(ctx, `SELECT version(), @@log_bin`).Scan(&version, &logs); err != nil {
		return fmt.Errorf("ask for the server's version: %w", err)
	}
	if err := checkVersion(version); err != nil {
		return err
	}
	if !logs {
		return nil
	}
	var name, format string
	if err := q.QueryRowContext(ctx, `SHOW VARIABLES LIKE 'binlog_format'`).Scan(&name, &format); err != nil {
		return fmt.Errorf("ask for the format of the binary log: %w", err)
	}
	if format == "STATEMENT" {
		return errors.New("binlog_format is STATEMENT, under which the server refuses writes at READ COMMITTED: set it to ROW or MIXED")
	}
	return nil
}
