package mysqlrabbitmq

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
)

// TestRun runs the example as its reader does, on a database and a virtual host of its own.
func TestRun(t *testing.T) {
	env := append(virtualHost(t), "SHOP_DSN="+database(t))
	before := names(t)
	out := script(t, env...)
	for _, want := range []string{
		"orders: ok", "running", "order eve-4: committed", "eve-1-invoice.wanted (orders): dead",
		`no queue takes messages to exchange "shop" with routing key "invoice.wanted"`, "retried eve-1-invoice.wanted", "Shown: 16 commands",
		"ada  order.placed  4 times", "bob  order.placed  4 times", "eve  order.placed  4 times", "eve  invoice.wanted  4 times",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	handled := map[string][]string{}
	var repeated []string
	for _, m := range regexp.MustCompile(`(?m)^(\w+)  (\w+-\d-\S+\.\w+)(.*)$`).FindAllStringSubmatch(out, -1) {
		customer, id, marks := m[1], m[2], m[3]
		if !slices.Contains(handled[customer], id) {
			handled[customer] = append(handled[customer], id)
		}
		if strings.HasSuffix(marks, "possible duplicate  handled before: ignored") {
			repeated = append(repeated, id)
		}
	}
	for customer, want := range map[string][]string{
		"ada": {"ada-1-order.placed", "ada-2-order.placed", "ada-3-order.placed", "ada-4-order.placed"},
		"bob": {"bob-1-order.placed", "bob-2-order.placed", "bob-3-order.placed", "bob-4-order.placed"},
		"eve": {
			"eve-1-order.placed", "eve-1-invoice.wanted", "eve-2-order.placed", "eve-2-invoice.wanted",
			"eve-3-order.placed", "eve-3-invoice.wanted", "eve-4-order.placed", "eve-4-invoice.wanted",
		},
	} {
		if !slices.Equal(handled[customer], want) {
			t.Errorf("of %s were handled %v, want %v\n%s", customer, handled[customer], want, out)
		}
	}
	slices.Sort(repeated)
	if want := []string{"ada-3-order.placed", "bob-3-order.placed", "eve-3-invoice.wanted", "eve-3-order.placed"}; !slices.Equal(repeated, want) {
		t.Errorf("marked and ignored were %v, want %v", repeated, want)
	}
	if after := names(t); !slices.Equal(before, after) {
		t.Errorf("the example left files behind: %v, was %v", after, before)
	}
}

// virtualHost makes one on the server of the tests, for this test alone, and returns what run.sh wants to know of it.
func virtualHost(t *testing.T) []string {
	t.Helper()
	at, err := url.Parse(server(t, "CONNECTD_TEST_RABBITMQ_URL"))
	if err != nil {
		t.Fatal("CONNECTD_TEST_RABBITMQ_URL is no URL")
	}
	name, user := "connectd-example-"+strings.ToLower(rand.Text()), at.User.Username()
	manage(t, http.MethodPut, "vhosts/"+name, "{}")
	t.Cleanup(func() { manage(t, http.MethodDelete, "vhosts/"+name, "") })
	manage(t, http.MethodPut, "permissions/"+name+"/"+user, `{"configure": ".*", "write": ".*", "read": ".*"}`)
	password, _ := at.User.Password()
	return []string{"RABBITMQ_ADDRESS=" + at.Host, "RABBITMQ_USER=" + user, "RABBITMQ_PASSWORD=" + password, "RABBITMQ_VHOST=" + name}
}

// manage calls the server's HTTP API.
func manage(t *testing.T, method, path, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, server(t, "CONNECTD_TEST_RABBITMQ_MGMT_URL")+"/api/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal("CONNECTD_TEST_RABBITMQ_MGMT_URL is no URL")
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		t.Errorf("%s %s: %s", method, path, response.Status)
	}
}

// database makes one on the server of the tests, for this test alone, and returns its DSN.
func database(t *testing.T) string {
	t.Helper()
	dsn := server(t, "CONNECTD_TEST_MYSQL_DSN")
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal("CONNECTD_TEST_MYSQL_DSN is no DSN")
	}
	t.Cleanup(func() { _ = db.Close() })
	name := "connectd_example_" + strings.ToLower(rand.Text())
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+name); err != nil {
			t.Error(err)
		}
	})
	return dsn[:strings.LastIndexByte(dsn, '/')+1] + name
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
