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
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// serveReceiver is the process that takes webhooks: HTTP servers on one port of 127.0.0.1, 127.0.0.2 and so on, that
// read each request, wait, and answer 204; the first never answers. It prints the port and lives until its stdin ends.
func serveReceiver(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	delay, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	port := 0
	for i := range n {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback(i), strconv.Itoa(port)))
		if err != nil {
			return err
		}
		port = l.Addr().(*net.TCPAddr).Port
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
	}
	fmt.Println(port)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// receiver is such a process.
type receiver struct {
	port    int
	hanging string   // a host that never answers
	hosts   []string // the others
}

func loopback(i int) string { return fmt.Sprintf("127.0.0.%d", i+1) }

// url is the address of the first host that answers.
func (r receiver) url() string { return fmt.Sprintf("http://%s:%d/", r.hosts[0], r.port) }

// startReceiver starts a receiver with so many hosts that answer after the delay, until the benchmark ends.
func startReceiver(b *testing.B, p programs, hosts int, delay time.Duration) receiver {
	line := startChild(b, p.receiver, strconv.Itoa(hosts+1), delay.String())
	r := receiver{hanging: loopback(0)}
	var err error
	if r.port, err = strconv.Atoi(line); err != nil {
		b.Fatal(err)
	}
	for i := range hosts {
		r.hosts = append(r.hosts, loopback(i+1))
	}
	return r
}

// startChild starts a program that lives until its stdin ends, which is when the benchmark ends, and returns the first line
// that it prints.
func startChild(b *testing.B, program string, args ...string) (line string) {
	cmd := exec.Command(program, args...)
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
	line, err = bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatalf("%s said %q: %v", filepath.Base(program), line, err)
	}
	return strings.TrimSpace(line)
}
