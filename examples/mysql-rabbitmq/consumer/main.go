// Command consumer takes the shop's commands from a queue of RabbitMQ and handles each once, however often it comes. It has
// a table of its own with what it has done, and remembers a command's id in the transaction that does it. It is there to be
// copied.
//
//	consumer             works until it is ended, and prints what comes
//	consumer bind KEY    lets the queue take messages with this routing key too
//	consumer count       prints what it has done
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	exchange, queue = "shop", "orders"
	// prefetch is how many messages may be here and not yet acknowledged.
	prefetch = 10
	// work is how long a command takes.
	work = 100 * time.Millisecond
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
	db, err := sql.Open("mysql", os.Getenv("CONSUMER_DSN"))
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer func() { _ = db.Close() }()
	if len(args) == 1 && args[0] == "count" {
		return count(ctx, db)
	}
	connection, err := amqp.DialConfig("amqp://"+os.Getenv("RABBITMQ_ADDRESS"), amqp.Config{
		Vhost: os.Getenv("RABBITMQ_VHOST"),
		SASL:  []amqp.Authentication{&amqp.PlainAuth{Username: os.Getenv("RABBITMQ_USER"), Password: os.Getenv("RABBITMQ_PASSWORD")}},
	})
	if err != nil {
		return fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	defer func() { _ = connection.Close() }()
	channel, err := connection.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	if len(args) == 2 && args[0] == "bind" {
		return channel.QueueBind(queue, args[1], exchange, false, nil)
	}
	return consume(ctx, db, channel)
}

// consume acknowledges a message after its effect. So what was handled just before a crash comes again, and so does what was
// not handled at all.
func consume(ctx context.Context, db *sql.DB, channel *amqp.Channel) error {
	for _, statement := range []string{
		`CREATE TABLE IF NOT EXISTS handled (id varchar(255) PRIMARY KEY)`,
		`CREATE TABLE IF NOT EXISTS done (customer varchar(255), type varchar(255), times integer, PRIMARY KEY (customer, type))`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create the consumer's tables: %w", err)
		}
	}
	if err := channel.Qos(prefetch, 0, false); err != nil {
		return fmt.Errorf("limit what comes: %w", err)
	}
	messages, err := channel.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	for message := range messages {
		if ctx.Err() != nil {
			return nil // what is not acknowledged, the queue gives to the next consumer
		}
		first, err := handle(ctx, db, message)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("handle %s: %w", message.MessageId, err)
		}
		show(message, first)
		if err := message.Ack(false); err != nil {
			return fmt.Errorf("acknowledge %s: %w", message.MessageId, err)
		}
	}
	if ctx.Err() == nil {
		return errors.New("the connection to RabbitMQ was lost") // to be started again
	}
	return nil
}

// handle does what a command asks for, here: it counts. It does nothing and returns false when that has been done before.
func handle(ctx context.Context, db *sql.DB, m amqp.Delivery) (first bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	result, err := tx.ExecContext(ctx, `INSERT IGNORE INTO handled (id) VALUES (?)`, m.MessageId)
	if err != nil {
		return false, err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO done VALUES (?, ?, 1) ON DUPLICATE KEY UPDATE times = times + 1`, customer(m), m.Type)
	if err != nil {
		return false, err
	}
	select {
	case <-time.After(work):
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return true, tx.Commit()
}

func customer(m amqp.Delivery) string {
	key, _ := m.Headers["connectd-key"].(string)
	return key
}

func show(m amqp.Delivery, first bool) {
	fmt.Printf("%s  %s", customer(m), m.MessageId)
	if m.Redelivered {
		fmt.Print("  not acknowledged before")
	}
	if m.Headers["connectd-possible-duplicate"] == true {
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
