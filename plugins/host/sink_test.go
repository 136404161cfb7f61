package host

import (
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

func TestDeliversThroughTheProcess(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "plain"), defaultTiming())
	outcomes, err := s.Deliver(within(t, 5*time.Second), batchOf(500))
	if err != nil {
		t.Fatal(err)
	}
	if len(outcomes) != 500 || outcomes[0].Kind != core.Delivered || outcomes[499].Kind != core.Delivered {
		t.Fatalf("%d outcomes, first %v", len(outcomes), outcomes[0])
	}
	st := s.Status()
	if st.State != Running || st.PID == 0 || st.Version != "1.2.3" || st.Description.Limits.MaxInFlight != 4 || st.Restarts != 0 {
		t.Errorf("status %+v", st)
	}
}
