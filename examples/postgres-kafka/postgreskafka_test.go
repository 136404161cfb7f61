package postgreskafka

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/segmentio/kafka-go"
)

// TestRun runs the example as its reader does, on a database and topics of its own.
func TestRun(t *testing.T) {
	dsn, broker := database(t), server(t, "CONNECTD_TEST_KAFKA_BROKERS")
	before := names(t)
	out := script(t, "SHOP_DSN="+dsn, "KAFKA_BROKER="+broker, "TOPIC_PREFIX="+topics(t, broker))
	for _, want := range []string{
		"orders: ok", "running", "order eve-3: committed", "18 commands; 6 were sent again",
		"ada  order.placed  3 times", "ada  payment.wanted  3 times", "eve  payment.wanted  3 times",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	first, again, partitions := map[string][]string{}, map[string][]string{}, map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)/(\d)@\d+  (\w+)  (\S+)(.*)$`).FindAllStringSubmatch(out, -1) {
		topic, partition, customer, id, mark := m[1], m[2], m[3], m[4], m[5]
		if p, ok := partitions[topic+customer]; ok && p != partition {
			t.Errorf("%s of %s is in partitions %s and %s", topic, customer, p, partition)
		}
		partitions[topic+customer] = partition
		switch mark {
		case "":
			first[topic] = append(first[topic], id)
		case "  possible duplicate  handled before: ignored":
			again[topic] = append(again[topic], id)
		default:
			t.Errorf("%s arrived with %q", id, mark)
		}
	}
	for topic, suffix := range map[string]string{"orders": "placed", "payments": "payment"} {
		for _, customer := range []string{"ada", "bob", "eve"} {
			want := []string{customer + "-1-" + suffix, customer + "-2-" + suffix, customer + "-3-" + suffix}
			if got := of(customer, first[topic]); !slices.Equal(got, want) {
				t.Errorf("of %s arrived %v for the first time, want %v", customer, got, want)
			}
			if got := of(customer, again[topic]); !slices.Equal(got, want[1:2]) {
				t.Errorf("of %s arrived %v again, want %v", customer, got, want[1:2])
			}
		}
	}
	if after := names(t); !slices.Equal(before, after) {
		t.Errorf("the example left files behind: %v, was %v", after, before)
	}
}

func of(customer string, ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !strings.HasPrefix(id, customer+"-") })
}

// topics returns the beginning of this test's topics, which are removed at its end.
func topics(t *testing.T, broker string) string {
	t.Helper()
	prefix := "connectd-example-" + strings.ToLower(rand.Text()) + "."
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		client := &kafka.Client{Addr: kafka.TCP(broker)}
		if _, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{prefix + "consumer"}}); err != nil {
			t.Error(err)
		}
		r, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{prefix + "orders", prefix + "payments"}})
		if err != nil {
			t.Fatal(err)
		}
		for err := range maps.Values(r.Errors) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return prefix
}

// database makes one on the server of the tests, for this test alone, and returns its DSN.
func database(t *testing.T) string {
	t.Helper()
	dsn := server(t, "CONNECTD_TEST_POSTGRES_DSN")
	at, err := url.Parse(dsn)
	if err != nil {
		t.Fatal("CONNECTD_TEST_POSTGRES_DSN is no URL")
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	name := "connectd_example_" + strings.ToLower(rand.Text())
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	at.Path = "/" + name
	return at.String()
}

// server is the address of a server of the tests.
func server(t *testing.T, variable string) string {
	t.Helper()
	address := os.Getenv(variable)
	switch {
	case address != "":
	case os.Getenv("CONNECTD_TEST_SERVICES") == "1":
		t.Fatalf("%s is not set, and CONNECTD_TEST_SERVICES=1 demands the server", variable)
	default:
		t.Skipf("needs a server: %s is not set (run.sh alone starts one, make test as well)", variable)
	}
	return address
}

// script runs run.sh and fails when it fails or leaves processes behind.
func script(t *testing.T, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it builds the programs
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "run.sh")
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = append(os.Environ(), env...), &out, &out, 10*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what a script that failed has left
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	return out.String()
}

func names(t *testing.T) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}
