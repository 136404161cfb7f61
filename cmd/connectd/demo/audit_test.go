package demo

import (
	"context"
	"path/filepath"
	"testing"
	"time"
)

// tradedShop is a shop with an outbox table of its own and a few orders in its books.
func tradedShop(t *testing.T) *shop {
	t.Helper()
	s, err := openShop(t.Context(), filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	_, err = s.db.Exec(`CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, aggregateid TEXT, aggregatetype TEXT,
		type TEXT, payload BLOB, state TEXT DEFAULT 'pending')`)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 * customers {
		if err := s.order(t.Context(), n, n != 7); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// honest is what a receiver gets of the shop when nothing goes wrong.
func honest(t *testing.T, s *shop) (list []arrival) {
	t.Helper()
	rows, err := s.db.Query("SELECT id, aggregateid FROM outbox ORDER BY seq")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		a := arrival{Deliveries: 1, Payload: "{}"}
		if err := rows.Scan(&a.ID, &a.Key); err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestAuditFindsEveryFault: the demo must not say that all is well when it is not.
func TestAuditFindsEveryFault(t *testing.T) {
	s := tradedShop(t)
	good := honest(t, s)
	repeat := good[3]
	repeat.Deliveries, repeat.PossibleDuplicate = 2, true
	unmarked := good[3]
	overtaken := append(append(clone(good[:3]), repeat), append(clone(good[4:]), unmarked)...)
	for name, c := range map[string]struct {
		list            []arrival
		refused, forged int
		balanced        bool
	}{
		"honest":            {list: good, balanced: true},
		"marked repeat":     {list: append(clone(good), repeat), balanced: true},
		"overtaken":         {list: overtaken, balanced: true},
		"forged":            {list: good, refused: 1, forged: 1, balanced: true},
		"lost":              {list: append(clone(good[:5]), good[6:]...)},
		"lost the last":     {list: good[:len(good)-1]},
		"reordered":         {list: append([]arrival{good[1], good[0]}, good[2:]...)},
		"not marked":        {list: append(clone(good), unmarked)},
		"not marked, later": {list: append(clone(overtaken), unmarked)},
		"invented":          {list: append(clone(good), arrival{ID: "nobody", Key: "x"})},
		"rolled back":       {list: append(clone(good), arrival{ID: "order-7", Key: "customer-07"})},
		"a bad signature":   {list: good, refused: 2, forged: 1},
		"believed forgery":  {list: good, refused: 0, forged: 1},
		"nothing":           {},
	} {
		b, err := audit(context.Background(), s, c.list, c.refused, c.forged)
		if err != nil {
			t.Fatal(err)
		}
		if b.balanced() != c.balanced {
			t.Errorf("%s: balanced %v: %+v", name, b.balanced(), b)
		}
	}
}

func clone(list []arrival) []arrival { return append([]arrival{}, list...) }

// TestShopRollsBack: what was rolled back is in the shop's count and not in the table.
func TestShopRollsBack(t *testing.T) {
	s := tradedShop(t)
	committed, rolledBack := s.counts()
	place, err := s.places(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if rolledBack != 2 || committed != 2*(2*customers-1) || len(place) != committed {
		t.Errorf("committed %d, rolled back %d, in the table %d", committed, rolledBack, len(place))
	}
	if err := s.drained(t.Context(), 60*time.Millisecond); err == nil {
		t.Error("a table with pending rows counts as drained")
	}
}
