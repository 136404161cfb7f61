//go:build linux

package chaos

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	producers    = 4
	sharedKeys   = 24
	producerCall = 10 * time.Second // deadline of a transaction
	killEvery    = 30               // transactions, until none of the killers is left
	wrongClock   = 10 * time.Minute // of some producers, either way
)

// producer is an application: several connections whose transactions overlap, of which some are rolled back.
type producer struct {
	database *database
	poisons  []string
	most     int // rows; after so many it writes no more
	done     chan struct{}
	wg       sync.WaitGroup

	keys []*key // all connections use all keys

	mu           sync.Mutex
	truth        *os.File
	log          *json.Encoder
	transactions int
	rows         int
	free         int      // rows without a key
	killers      []string // what is wrong with very few rows, in turn
	err          error
}

// key is a key that one transaction at a time may use.
type key struct {
	mu         sync.Mutex
	number     int
	generation int // rises when the end of a transaction is not known
	n          int
}

func (k *key) name() string { return fmt.Sprintf("k%02d-%d", k.number, k.generation) }

// produce starts writing rows, and what became of them into the truth log.
func produce(d *database, truthLog string, p pair, plan plan) (*producer, error) {
	f, err := os.Create(truthLog)
	if err != nil {
		return nil, err
	}
	app := &producer{database: d, poisons: p.poisons(), most: plan.rows, done: make(chan struct{}), truth: f, log: json.NewEncoder(f), killers: p.killers()}
	for n := range sharedKeys {
		app.keys = append(app.keys, &key{number: n})
	}
	for n := range producers {
		app.wg.Go(func() { app.run(rand.New(rand.NewPCG(plan.seed, uint64(n)))) })
	}
	return app, nil
}

// stop waits for the last transactions. An error is one of the truth log, which is then useless.
func (p *producer) stop() error {
	close(p.done)
	p.wg.Wait()
	if err := p.truth.Close(); p.err == nil {
		p.err = err
	}
	return p.err
}

func (p *producer) run(dice *rand.Rand) {
	for p.goesOn() {
		pause := 30*time.Millisecond + upTo(dice, 120*time.Millisecond)
		if !p.transaction(dice) {
			pause = 200 * time.Millisecond // the server is away
		}
		select {
		case <-p.done:
			return
		case <-time.After(pause):
		}
	}
}

func (p *producer) goesOn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rows < p.most
}

// transaction writes some rows, of some keys. It keeps the keys for itself until it has ended.
func (p *producer) transaction(dice *rand.Rand) (answered bool) {
	keys := p.choose(dice)
	for _, k := range keys {
		k.mu.Lock()
		defer k.mu.Unlock()
	}
	facts := p.compose(dice, keys)
	end := p.attempt(dice, facts, dice.IntN(10) == 0, upTo(dice, 15*time.Millisecond))
	for _, k := range keys {
		if end == unknown {
			k.generation, k.n = k.generation+1, 0
		}
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range facts {
		f.End, f.At = end, now
		if err := p.log.Encode(f); p.err == nil {
			p.err = err
		}
	}
	return end == committed
}

// choose picks keys, in an order in which two transactions cannot wait for each other.
func (p *producer) choose(dice *rand.Rand) (keys []*key) {
	numbers := dice.Perm(len(p.keys))[:1+dice.IntN(3)]
	slices.Sort(numbers)
	for _, n := range numbers {
		keys = append(keys, p.keys[n])
	}
	return keys
}

// compose makes one to three rows of each key, seldom many, and some that have none.
func (p *producer) compose(dice *rand.Rand, keys []*key) (facts []fact) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.transactions++
	add := func(id, key string, n int) {
		f := fact{Transaction: p.transactions, ID: id, Key: key, N: n}
		if dice.IntN(100) == 0 {
			f.Poison = p.poisons[dice.IntN(len(p.poisons))]
		}
		if len(p.killers) > 0 && p.transactions%killEvery == 0 && len(facts) == 0 {
			f.Poison, p.killers = p.killers[0], p.killers[1:]
		}
		facts = append(facts, f)
	}
	rows := 1 + dice.IntN(3)
	if dice.IntN(50) == 0 {
		rows = 40
	}
	for range rows {
		for _, k := range keys {
			k.n++
			add(fmt.Sprintf("%s-%06d", k.name(), k.n), k.name(), k.n)
		}
	}
	if dice.IntN(4) == 0 {
		p.free++
		add(fmt.Sprintf("free-%06d", p.free), "", p.free)
	}
	p.rows += len(facts)
	return facts
}

// attempt runs the transaction. Whatever fails before the commit is sent makes the server roll it back.
func (p *producer) attempt(dice *rand.Rand, facts []fact, giveUp bool, linger time.Duration) ending {
	ctx, cancel := context.WithTimeout(context.Background(), producerCall)
	defer cancel()
	tx, err := p.database.db.BeginTx(ctx, nil)
	if err != nil {
		return rolledBack
	}
	defer tx.Rollback()
	for _, f := range facts {
		if err := p.insert(ctx, tx, f, createdAt(dice)); err != nil {
			return rolledBack
		}
	}
	time.Sleep(linger) // others' transactions are open meanwhile
	if giveUp {
		return rolledBack
	}
	if tx.Commit() != nil {
		return unknown
	}
	return committed
}

// insert writes one row.
func (p *producer) insert(ctx context.Context, tx *sql.Tx, f fact, created time.Time) error {
	var key, headers any
	if f.Key != "" {
		key = f.Key
	}
	kind := "chaos"
	text := payload{Key: f.Key, N: f.N}
	switch f.Poison {
	case unreadable:
		headers = "[]"
	case refused, crashing, hanging:
		kind = f.Poison
	case tooLarge:
		text.Ballast = strings.Repeat("x", largest)
	}
	body, err := json.Marshal(text)
	if err != nil {
		return err
	}
	return p.database.insert(ctx, tx, created, f.ID, key, kind, string(body), headers)
}

// createdAt is what an application says of when a row was created: mostly nothing, since the database knows it; else what
// its own clock says, which may be wrong.
func createdAt(dice *rand.Rand) time.Time {
	switch dice.IntN(6) {
	case 0:
		return time.Now().Add(wrongClock)
	case 1:
		return time.Now().Add(-wrongClock)
	default:
		return time.Time{}
	}
}

// readTruth reads the truth log.
func readTruth(path string) (facts []fact, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var one fact
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("truth log, line %d: %w", len(facts)+1, err)
		}
		facts = append(facts, one)
	}
	return facts, lines.Err()
}
