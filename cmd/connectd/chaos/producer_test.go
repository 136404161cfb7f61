//go:build linux

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	producers    = 4
	sharedKeys   = 24
	producerCall = 10 * time.Second // deadline of a transaction
)

// producer is an application: several connections whose transactions overlap, of which some are rolled back.
type producer struct {
	database *database
	poisons  []string
	done     chan struct{}
	wg       sync.WaitGroup

	keys []*key // all connections use all keys

	mu           sync.Mutex
	truth        *os.File
	log          *json.Encoder
	transactions int
	free         int // rows without a key
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
func produce(d *database, truthLog string, poisons []string, seed uint64) (*producer, error) {
	f, err := os.Create(truthLog)
	if err != nil {
		return nil, err
	}
	p := &producer{database: d, poisons: poisons, done: make(chan struct{}), truth: f, log: json.NewEncoder(f)}
	for n := range sharedKeys {
		p.keys = append(p.keys, &key{number: n})
	}
	for n := range producers {
		p.wg.Go(func() { p.run(rand.New(rand.NewPCG(seed, uint64(n)))) })
	}
	return p, nil
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
	for {
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

// transaction writes some rows, of some keys. It keeps the keys for itself until it has ended.
func (p *producer) transaction(dice *rand.Rand) (answered bool) {
	keys := p.choose(dice)
	for _, k := range keys {
		k.mu.Lock()
		defer k.mu.Unlock()
	}
	facts := p.compose(dice, keys)
	end := p.attempt(facts, dice.IntN(10) == 0, upTo(dice, 15*time.Millisecond))
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
	return facts
}

// attempt runs the transaction. Whatever fails before the commit is sent makes the server roll it back.
func (p *producer) attempt(facts []fact, giveUp bool, linger time.Duration) ending {
	ctx, cancel := context.WithTimeout(context.Background(), producerCall)
	defer cancel()
	tx, err := p.database.db.BeginTx(ctx, nil)
	if err != nil {
		return rolledBack
	}
	defer tx.Rollback()
	for _, f := range facts {
		var key, headers any
		if f.Key != "" {
			key = f.Key
		}
		kind := "chaos"
		switch f.Poison {
		case unreadable:
			headers = "[]"
		case refused:
			kind = refused
		}
		payload := fmt.Sprintf(`{"key":%q,"n":%d}`, f.Key, f.N)
		if _, err := tx.ExecContext(ctx, p.database.insert(), f.ID, key, kind, payload, headers); err != nil {
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
