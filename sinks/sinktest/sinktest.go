// Package sinktest is the conformance suite for sinks. It is for the authors of sinks, inside and outside this
// repository: Run tests a sink in process, Binary the program that serves it, and both check the same contract, the one
// written at core.Sink, against a real destination that the author's Harness describes.
//
// A sink's whole test is a harness and two calls:
//
//	func harness(t testing.TB) sinktest.Harness {
//		server := newServer(t) // a real destination, new and empty
//		return sinktest.Harness{
//			Sink:     mysink.New(),
//			Settings: []byte(`{"url":"` + server.URL + `"}`),
//			Received: server.Received,
//			Outage:   server.Outage,
//		}
//	}
//
//	func TestSink(t *testing.T)   { sinktest.Run(t, harness) }
//	func TestPlugin(t *testing.T) { sinktest.Binary(t, sinktest.Build(t, "./cmd/connectd-sink-mine"), harness) }
//
// What a harness leaves out is skipped with a line that says so. Run with -race: some checks then find more.
package sinktest

import (
	"testing"

	"github.com/connectd/connectd/core"
)

// Harness is one sink and one new and empty destination that belongs to it alone. Its functions are called from the
// test's goroutine.
type Harness struct {
	// Sink is new: neither configured nor open. The suite closes it. Binary does not look at it.
	Sink core.Sink
	// Settings are the sink's settings for this destination, a JSON object.
	Settings []byte
	// Secrets are values in Settings that must never be shown in a diagnostic, an error or an outcome.
	Secrets []string
	// Completes says that with these Settings each delivered record is a completed command; else none may be.
	Completes bool
	// BadSettings are settings the sink must refuse.
	BadSettings []BadSettings
	// Received returns everything that is at the destination, in the order of arrival, repetitions included. It must
	// not ask the sink. Seq need not be set.
	Received func(t testing.TB) []core.Record
	// Expect, if set, says how a delivered record looks when it is read back, where a destination does not carry
	// everything: it returns r with the fields that are lost set to what Received gives for them. Seq is never compared.
	Expect func(r core.Record) core.Record
	// Refuse, if set, changes a record so that the destination will never take it.
	Refuse func(r core.Record) core.Record
	// Outage, if set, makes the destination unreachable or unable to take anything until restore is called. What it
	// has received stays.
	Outage func(t testing.TB) (restore func())
	// Hang, if set, makes the destination take what it is sent without an answer until restore is called.
	Hang func(t testing.TB) (restore func())
}

// BadSettings is one case of settings with a mistake.
type BadSettings struct {
	Settings string
	// Pointer is the RFC 6901 pointer of the diagnostic that is expected.
	Pointer string
	// Secret, if not empty, must not be in any diagnostic.
	Secret string
}

// Run tests a sink in process. It calls start for each of its tests.
func Run(t *testing.T, start func(t testing.TB) Harness) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) { c.run(newTrial(t, start(t))) })
	}
}

// check is one test of the suite.
type check struct {
	name string
	run  func(c *trial)
}

func checks() []check {
	return []check{
		{"describe", checkDescribe},
		{"settings/good", checkGoodSettings},
		{"settings/bad", checkBadSettings},
		{"settings/unknown", checkUnknownSetting},
		{"settings/no object", checkNoObject},
		{"settings/corrected", checkCorrectedSettings},
		{"settings/offline", checkOfflineSettings},
		{"life/close unopened", checkCloseUnopened},
		{"life/close after failed open", checkCloseAfterFailedOpen},
		{"life/close twice", checkCloseTwice},
		{"life/goroutines", checkGoroutines},
		{"batch/empty", checkEmptyBatch},
		{"batch/one", checkOneRecord},
		{"batch/500", check500Records},
		{"batch/8 MiB", check8MiB},
		{"batch/20 MB record", check20MB},
		{"fields/names", checkNames},
		{"fields/payloads", checkPayloads},
		{"fields/headers", checkHeaders},
		{"fields/numbers", checkNumbers},
		{"refused/places", checkRefusedPlaces},
		{"refused/key", checkRefusedKey},
		{"outage/deliver", checkOutage},
		{"outage/open", checkOutageAtOpen},
		{"deadline/done", checkDoneContext},
		{"deadline/short", checkShortDeadlines},
		{"deadline/hang", checkHang},
		{"deadline/close", checkCloseWhileHanging},
		{"order/in a batch", checkOrderInBatch},
		{"order/across batches", checkOrderAcrossBatches},
		{"order/concurrent", checkConcurrent},
		{"buffers/after the call", checkBuffers},
		{"buffers/after a timeout", checkBuffersAfterTimeout},
	}
}
