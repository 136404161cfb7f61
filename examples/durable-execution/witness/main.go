// Command witness looks at connectd's tables as a person with SQL would, to show what happens there. No application needs it.
//
//	witness lease WORD N    prints WORD and whether the lease of the commands is held, now, by its Nth owner
//	witness workers         prints how many daemons live
//	witness later SECONDS   lets the lease end so much earlier, as if so much time had passed
//	witness row ID          prints a command's state, and how often it was sent
//	witness books           prints how many rows there are, receipts, and rows that were cleaned
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/connectd/connectd/examples/durable-execution/database"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "witness:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	db, err := database.Open()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	switch {
	case len(args) == 3 && args[0] == "lease":
		return lease(ctx, db, args[1], args[2])
	case len(args) == 2 && args[0] == "later":
		return later(ctx, db, args[1])
	case len(args) == 2 && args[0] == "row":
		var state string
		var deliveries int
		err := db.QueryRowContext(ctx, db.SQL(`SELECT state, deliveries FROM outbox WHERE command_id = ?`), args[1]).Scan(&state, &deliveries)
		if err != nil {
			return fmt.Errorf("command %s: %w", args[1], err)
		}
		fmt.Println("status=", state, "deliveries=", deliveries)
		return nil
	case slices.Equal(args, []string{"workers"}):
		return numbers(ctx, db, "%d\n", `SELECT count(*) FROM connectd_worker`, 1)
	case slices.Equal(args, []string{"books"}):
		return numbers(ctx, db, "rows= %d receipts= %d cleaned= %d\n",
			`SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM connectd_receipt), (SELECT coalesce(sum(count), 0) FROM connectd_ledger)`, 3)
	default:
		return errors.New("say lease, workers, later, row or books")
	}
}

func numbers(ctx context.Context, db database.DB, format, query string, n int) error {
	values, dest := make([]any, n), make([]any, n)
	for i := range values {
		number := new(int)
		values[i], dest[i] = number, number
	}
	if err := db.QueryRowContext(ctx, query).Scan(dest...); err != nil {
		return err
	}
	for i, v := range values {
		values[i] = *v.(*int)
	}
	fmt.Printf(format, values...)
	return nil
}

// untilEnd is how many seconds a lease has left, by the database's clock, which is the only one that counts.
var untilEnd = map[string]string{
	"sqlite":   `(lease_until - (julianday('now') - 2440587.5) * 86400000) / 1000.0`,
	"postgres": `CAST(extract(epoch FROM lease_until - clock_timestamp()) AS double precision)`,
	"mysql":    `timestampdiff(MICROSECOND, utc_timestamp(6), lease_until) / 1e6`,
}

// lease looks at the lease of the table's one partition. Its epoch counts the owners.
func lease(ctx context.Context, db database.DB, word, owner string) error {
	n, err := strconv.Atoi(owner)
	if err != nil {
		return err
	}
	var epoch int
	var left float64
	if err := db.QueryRowContext(ctx, `SELECT epoch, `+untilEnd[db.Kind]+` FROM connectd_lease WHERE tbl = 'outbox'`).Scan(&epoch, &left); err != nil {
		return fmt.Errorf("read the lease: %w", err)
	}
	answer := map[bool]string{true: "True", false: "False"}[epoch == n && left > 0]
	fmt.Println(word, answer)
	fmt.Printf("  owner %d has the lease, until %.0f s from now by the database's clock\n", epoch, left)
	return nil
}

func later(ctx context.Context, db database.DB, seconds string) error {
	n, err := strconv.Atoi(seconds)
	if err != nil {
		return err
	}
	earlier := map[string]string{
		"sqlite":   `lease_until - %d * 1000`,
		"postgres": `lease_until - %d * interval '1 second'`,
		"mysql":    `lease_until - interval %d second`,
	}[db.Kind]
	return db.Run(ctx, `UPDATE connectd_lease SET lease_until = `+fmt.Sprintf(earlier, n)+` WHERE tbl = 'outbox'`)
}
