//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"time"
)

// tenure is a partition under one lease.
type tenure struct {
	part  int
	epoch int64
}

// tenures watch the lease table, so that it is known which daemon sent what arrived. One so short that it falls between
// two looks, or while the database was away, is not known.
type tenures struct {
	done, ended chan struct{}
	owners      map[tenure]string // read after stop
	pids        map[string]int    // by owner; read after stop
}

// watchTenures watches until stop.
func watchTenures(d *database) *tenures {
	t := &tenures{done: make(chan struct{}), ended: make(chan struct{}), owners: map[tenure]string{}, pids: map[string]int{}}
	go func() {
		defer close(t.ended)
		for {
			ctx, cancel := context.WithTimeout(context.Background(), probeTime)
			_ = t.see(ctx, d) // a database that is away is an accident
			cancel()
			select {
			case <-t.done:
				return
			case <-time.After(look):
			}
		}
	}()
	return t
}

// see notes who has which partition now. A daemon's first heartbeat may come after its first lease.
func (t *tenures) see(ctx context.Context, d *database) error {
	list, err := d.db.QueryContext(ctx, `SELECT l.part, l.epoch, l.owner, w.info FROM connectd_lease l
		LEFT JOIN connectd_worker w ON w.tbl = l.tbl AND w.owner = l.owner WHERE l.owner IS NOT NULL`)
	if err != nil {
		return err
	}
	defer list.Close()
	for list.Next() {
		var one tenure
		var owner string
		var info []byte
		if err := list.Scan(&one.part, &one.epoch, &owner, &info); err != nil {
			return err
		}
		t.owners[one] = owner
		var published struct{ PID int }
		if json.Unmarshal(info, &published) == nil && published.PID != 0 {
			t.pids[owner] = published.PID
		}
	}
	return list.Err()
}

// stop ends the watching and says in which slot the daemon of each tenure was.
func (t *tenures) stop(f *fleet) map[tenure]int {
	close(t.done)
	<-t.ended
	senders := map[tenure]int{}
	for one, owner := range t.owners {
		if slot := f.slotOf(t.pids[owner]); slot != everybody {
			senders[one] = slot
		}
	}
	return senders
}
