// Command consumer reads the shop's commands from Kafka and handles each once, however often it comes. It has a table of its
// own with what it has done, and remembers a command's id in the transaction that does it. It is there to be copied.
//
//	consumer          reads until it is ended, and prints what comes
//	consumer count    prints what it has done
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/segmentio/kafka-go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	db, err := sql.Open("pgx", os.Getenv("CONSUMER_DSN"))
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer func() { _ = db.Close() }()
	for _, statement := range []string{
		`CREATE TABLE IF NOT EXISTS handled (id text PRIMARY KEY)`,
		`CREATE TABLE IF NOT EXISTS done (customer text, type text, times integer, PRIMARY KEY (customer, type))`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create the consumer's tables: %w", err)
		}
	}
	if len(args) == 1 && args[0] == "count" {
		return count(ctx, db)
	}
	return consume(ctx, db, os.Getenv("KAFKA_BROKER"), os.Getenv("TOPIC_PREFIX"))
}

// consume reads as a consumer group, which remembers how far it came: a message's offset is committed after its effect. So
// one that was handled just before a crash comes again.
func consume(ctx context.Context, db *sql.DB, broker, prefix string) (err error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:     []string{broker},
		GroupID:     prefix + "consumer",
		GroupTopics: []string{prefix + "orders", prefix + "payments"},
		StartOffset: kafka.FirstOffset, // of a group that is new: everything that is there
		MaxWait:     time.Second,       // of a fetch that finds nothing, and so of the end
	})
	defer func() { err = errors.Join(err, reader.Close()) }()
	for {
		message, err := reader.FetchMessage(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read from Kafka: %w", err)
		}
		if err := take(ctx, db, reader, message); err != nil {
			return fmt.Errorf("handle %s: %w", header(message, "connectd-id"), err)
		}
	}
}

// take handles a message and commits its offset. Once begun, it is done also when the program is asked to end.
func take(ctx context.Context, db *sql.DB, reader *kafka.Reader, m kafka.Message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	first, err := handle(ctx, db, header(m, "connectd-id"), string(m.Key), header(m, "connectd-type"))
	if err != nil {
		return err
	}
	if err := reader.CommitMessages(ctx, m); err != nil {
		return fmt.Errorf("commit its offset: %w", err)
	}
	show(m, first)
	return nil
}

// handle does what a command asks for, here: it counts. It does nothing and returns false when that has been done before.
func handle(ctx context.Context, db *sql.DB, id, customer, kind string) (first bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	result, err := tx.ExecContext(ctx, `INSERT INTO handled (id) VALUES ($1) ON CONFLICT DO NOTHING`, id)
	if err != nil {
		return false, err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO done AS d VALUES ($1, $2, 1) ON CONFLICT (customer, type) DO UPDATE SET times = d.times + 1`, customer, kind)
	if err != nil {
		return false, err
	}
	return true, tx.Commit()
}

func header(m kafka.Message, name string) string {
	for _, h := range m.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

func show(m kafka.Message, first bool) {
	topic := strings.TrimPrefix(m.Topic, os.Getenv("TOPIC_PREFIX"))
	fmt.Printf("%s/%d@%d  %s  %s", topic, m.Partition, m.Offset, m.Key, header(m, "connectd-id"))
	if header(m, "connectd-possible-duplicate") == "true" {
		fmt.Print("  possible duplicate")
	}
	if !first {
		fmt.Print("  handled before: ignored")
	}
	fmt.Println()
}

func count(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `SELECT customer, type, times FROM done ORDER BY 1, 2`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var customer, kind string
		var times int
		if err := rows.Scan(&customer, &kind, &times); err != nil {
			return err
		}
		fmt.Printf("%s  %s  %d times\n", customer, kind, times)
	}
	return rows.Err()
}
