// Command connectd carries outbox rows from a database to where they must go. Package documentation is in the
// README; `connectd help` lists the commands.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.LookupEnv))
}
