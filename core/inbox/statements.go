package inbox

import "strings"

// statements are a dialect's. All wait for whoever has the same receipt in hand.
type statements struct {
	// claim makes the receipt started, with a token of the call's own as its result, unless there is one that is not
	// failed. Parameters: command, consumer, token; in MySQL the token twice. It gives status, result and time, in
	// microseconds since 1970, of the receipt that is there now; in MySQL look does that.
	claim, look string
	// settle makes the claimed receipt what it shall be. Parameters: status, result, command, consumer, token. It gives
	// the time; in MySQL settled does, with the parameters command, consumer, status, result.
	settle, settled string
}

func (d Dialect) statements(schema string) statements {
	switch d {
	case PostgreSQL:
		const at = " CAST(extract(epoch FROM at) * 1000000 AS bigint)"
		table := receipts(schema, `"`)
		return statements{
			claim: "INSERT INTO " + table + " AS r (command_id, consumer, status, result_ref) VALUES ($1, $2, 'started', $3)" + onConflict + at,
			settle: "UPDATE " + table + " SET status = $1, result_ref = $2, at = clock_timestamp()" +
				" WHERE command_id = $3 AND consumer = $4 AND status = 'started' AND result_ref = $5 RETURNING" + at,
		}
	case MySQL:
		const at = " TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at)"
		table := receipts(schema, "`")
		return statements{
			// Assignments are made from left to right. An update of nothing takes the lock that a refused INSERT would
			// only share.
			claim: "INSERT INTO " + table + " (command_id, consumer, status, result_ref) VALUES (?, ?, 'started', ?)" +
				" ON DUPLICATE KEY UPDATE result_ref = IF(status = 'failed', ?, result_ref), status = IF(status = 'failed', 'started', status)",
			look: "SELECT status, result_ref," + at + " FROM " + table + " WHERE command_id = ? AND consumer = ? FOR UPDATE",
			settle: "UPDATE " + table + " SET status = ?, result_ref = ?, at = UTC_TIMESTAMP(6)" +
				" WHERE command_id = ? AND consumer = ? AND status = 'started' AND result_ref = ?",
			settled: "SELECT" + at + " FROM " + table + " WHERE command_id = ? AND consumer = ? AND status = ? AND result_ref <=> ? FOR UPDATE",
		}
	default:
		const now = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
		table := receipts(schema, `"`)
		return statements{
			claim: "INSERT INTO " + table + " AS r (command_id, consumer, status, result_ref) VALUES (?, ?, 'started', ?)" + onConflict + " at * 1000",
			settle: "UPDATE " + table + " SET status = ?, result_ref = ?, at = " + now +
				" WHERE command_id = ? AND consumer = ? AND status = 'started' AND result_ref = ? RETURNING at * 1000",
		}
	}
}

const onConflict = " ON CONFLICT (command_id, consumer) DO UPDATE SET" +
	" result_ref = CASE WHEN r.status = 'failed' THEN excluded.result_ref ELSE r.result_ref END," +
	" status = CASE WHEN r.status = 'failed' THEN 'started' ELSE r.status END" +
	" RETURNING status, result_ref,"

func receipts(schema, mark string) string {
	if schema == "" {
		return "connectd_receipt"
	}
	return mark + strings.ReplaceAll(schema, mark, mark+mark) + mark + ".connectd_receipt"
}
