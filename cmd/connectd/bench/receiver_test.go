//go:build linux

package bench

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// serveReceiver is the process that takes webhooks: HTTP servers on loopback ports that read each request, wait, and
// answer 204; the first of them never answers. It prints "ready" and the ports, and lives until its stdin ends.
func serveReceiver(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	delay, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	line := "ready"
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		handler := func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if i == 0 {
				<-r.Context().Done()
				return
			}
			if delay > 0 {
				time.Sleep(delay)
			}
			w.WriteHeader(http.StatusNoContent)
		}
		go func() { _ = http.Serve(l, http.HandlerFunc(handler)) }()
		line += " " + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	fmt.Println(line)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// receiver is such a process.
type receiver struct {
	hanging int   // a port that never answers
	ports   []int // the others
}

// startReceiver starts a receiver with so many ports that answer after the delay, until the benchmark ends.
func startReceiver(b *testing.B, p programs, ports int, delay time.Duration) receiver {
	cmd := exec.Command(p.receiver, strconv.Itoa(ports+1), delay.String())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatalf("the receiver said %q: %v", line, err)
	}
	var all []int
	for _, field := range strings.Fields(line)[1:] {
		port, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, port)
	}
	return receiver{hanging: all[0], ports: all[1:]}
}
