package postgres_test

import (
	"strings"
	"testing"

	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

func TestAReceiptOfAnotherStatusIsRefused(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{})
	schema, _, _ := strings.Cut(cfg.Table, ".")
	pool := application(t, cfg.DSN)
	for status, fits := range map[string]bool{"done": true, "failed": true, "started": true, "DONE": false, "done ": false, "completed": false, "": false} {
		_, err := pool.Exec(t.Context(), `INSERT INTO `+schema+`.connectd_receipt (command_id, status) VALUES ($1, $2)`, "cmd of "+status, status)
		if fits != (err == nil) || err != nil && !strings.Contains(err.Error(), "a receipt is done, failed or started") {
			t.Errorf("%q: the error is %v", status, err)
		}
	}
}
