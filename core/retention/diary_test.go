package retention

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var epoch = time.Unix(0, 0)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func (d *diary) String() string {
	var all []string
	for _, s := range d.spans {
		text := fmt.Sprint(s.upTo, "@", s.due.Unix())
		if s.due.IsZero() {
			text = fmt.Sprint(s.upTo, "@now")
		}
		if s.empty {
			text += "-"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func TestDiary(t *testing.T) {
	d := newDiary()
	for _, c := range []struct {
		what  string
		do    func()
		diary string
	}{
		{"a full look whose rows stay", func() { d.looked(0, 0, 100, false, false, at(10), at(5)) }, "100@10 0@now"},
		{"a full look whose rows went", func() { d.looked(1, 1, 200, false, true, at(20), at(5)) }, "100@10 200@20- 0@now"},
		{"another one", func() { d.looked(2, 2, 300, false, true, at(30), at(5)) }, "100@10 300@20- 0@now"},
		{"the end, with rows that stay", func() { d.looked(2, 2, 350, true, false, at(40), at(5)) }, "100@10 300@20- 350@40 0@5-"},
		{"nothing came", func() { d.looked(3, 3, 0, true, true, at(1), at(50)) }, "100@10 300@20- 350@40 0@50-"},
		{"a stretch that was shorter than the limit", func() { d.looked(0, 0, 90, true, false, at(60), at(5)) }, "100@60 300@20- 350@40 0@50-"},
		{"several at once, not to the end", func() { d.looked(1, 2, 320, false, false, at(70), at(5)) }, "100@60 320@70 350@40 0@50-"},
		{"all of it", func() { d.looked(0, 3, 0, true, true, at(1), at(80)) }, "0@80-"},
	} {
		if c.do(); d.String() != c.diary {
			t.Fatalf("%s: %s, want %s", c.what, d, c.diary)
		}
	}
}

func TestDiaryFindsWhatIsDue(t *testing.T) {
	d := &diary{spans: []span{{upTo: 10, due: at(5)}, {upTo: 20, due: at(1)}, {upTo: 30, due: at(2)}, {upTo: 40, due: at(9)}, {due: at(3)}}}
	for now, want := range map[int]string{0: "-1 -1 1", 1: "1 1 1", 2: "1 2 2", 3: "1 2 3", 9: "0 4 9"} {
		first, last, next := d.due(at(now))
		if got := fmt.Sprint(first, last, next.Unix()); got != want {
			t.Errorf("at %d: %s, want %s", now, got, want)
		}
	}
}

// Whatever is noted, the spans follow each other, the last one is the end, and nothing is put off that was due.
func TestDiaryStaysWhole(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(1, seed))
		d := newDiary()
		now := 0
		for range 500 {
			now += rnd.IntN(5)
			first, last, _ := d.due(at(now))
			if first < 0 {
				continue
			}
			after := max(d.after(first), 0)
			end := d.spans[last].upTo
			if end == 0 {
				end = after + 1 + rnd.Int64N(1000)
			}
			upTo, whole := after+1+rnd.Int64N(max(end-after, 1)), rnd.IntN(3) == 0
			empty := rnd.IntN(3) == 0
			d.looked(first, last, upTo, whole, empty, at(now+1+rnd.IntN(50)), at(now+1+rnd.IntN(50)))
			for i, s := range d.spans {
				switch {
				case i == len(d.spans)-1 && s.upTo != 0, i < len(d.spans)-1 && s.upTo <= max(d.after(i), 0):
					t.Fatalf("seed %d: %s", seed, d)
				case s.due.After(at(now + 60)):
					t.Fatalf("seed %d: put off for too long: %s", seed, d)
				}
			}
			if rnd.IntN(40) == 0 {
				d.shorten()
			}
		}
	}
}
