package mysqlrabbitmq

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/examples/exampletest"
	"github.com/connectd/connectd/scripts/services"
)

// TestRun runs the example as its reader does, on a database and a virtual host of its own.
func TestRun(t *testing.T) {
	env := append(virtualHost(t), "SHOP_DSN="+exampletest.MySQLDatabase(t, services.MySQL(t)))
	out := exampletest.Run(t, env)
	exampletest.Want(t, out,
		"orders: ok", "running", "order eve-4: committed", "eve-1-invoice.wanted (orders): dead",
		`no queue takes messages to exchange "shop" with routing key "invoice.wanted"`, "retried eve-1-invoice.wanted", "Shown: 16 commands",
		"ada  order.placed  4 times", "bob  order.placed  4 times", "eve  order.placed  4 times", "eve  invoice.wanted  4 times",
	)
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
}

// virtualHost makes one on the server of the tests, for this test alone, and returns what run.sh wants to know of it.
func virtualHost(t *testing.T) []string {
	t.Helper()
	at, err := url.Parse(services.RabbitMQ(t))
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
	request, err := http.NewRequestWithContext(ctx, method, services.RabbitMQManagement(t)+"/api/"+path, strings.NewReader(body))
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
