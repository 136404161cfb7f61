package config_test

import "testing"

// YAML 1.2.2, 7.3.3: a colon that no space follows belongs to the plain scalar that it is in.
func TestColonsInLists(t *testing.T) {
	cfg := load(t, `connectors:
  a: {source: {plugin: sqlite, path: a.db}, sink: {plugin: file, brokers: [localhost:9092, "q:1", 'r:2', a:b:c, ß:1], pair: [x: 1, y: 2], url: [http://h:1/p], deep: [[h:1], {k: [m:2]}]}}
`, env())
	want := `{"brokers":["localhost:9092","q:1","r:2","a:b:c","ß:1"],"pair":[{"x":1},{"y":2}],"url":["http://h:1/p"],"deep":[["h:1"],{"k":["m:2"]}]}`
	if got := string(cfg.Connectors[0].Sink.Settings); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
