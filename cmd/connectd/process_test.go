package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait of these tests; the machine may be busy.
const patience = 60 * time.Second

// eventually waits until ok, or fails the test with what was last said about it.
func eventually(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	var last string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var done bool
		if done, last = ok(); done {
			return
		}
	}
	t.Fatalf("%s: not within %v; last: %s", what, patience, last)
}

// standIns is a PATH, as an environment has it, on which this test binary has these names first.
func standIns(t *testing.T, names ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range names {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return "PATH=" + bin + ":" + os.Getenv("PATH")
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// connectdProcess is connectd as a real process in the directory, with more environment.
func connectdProcess(t *testing.T, dir, env string, args ...string) result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, configured(dir, args)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env), &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// daemonProcess is `connectd run` as a real process.
type daemonProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    *buffer
	exited chan struct{}
	err    error // set before exited is closed
}

// startDaemon starts the daemon in the directory, with more environment.
func startDaemon(t *testing.T, dir string, env ...string) *daemonProcess {
	t.Helper()
	return startDaemonWith(t, dir, nil, env...)
}

// startDaemonWith is startDaemon with more arguments.
func startDaemonWith(t *testing.T, dir string, args []string, env ...string) *daemonProcess {
	t.Helper()
	return launch(t, dir, daemonCommand(t, args...), env...)
}

// daemonCommand is `connectd run` with more arguments.
func daemonCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(self, append([]string{"run", "--http", "127.0.0.1:0"}, args...)...)
}

// launch starts a command that is or becomes the daemon.
func launch(t *testing.T, dir string, cmd *exec.Cmd, env ...string) *daemonProcess {
	t.Helper()
	d, err := spawn(t, dir, cmd, env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.end)
	return d
}

// spawn is launch for whoever ends the daemon, from any goroutine.
func spawn(t *testing.T, dir string, cmd *exec.Cmd, env ...string) (*daemonProcess, error) {
	d := &daemonProcess{t: t, cmd: cmd, log: &buffer{}, exited: make(chan struct{})}
	d.cmd.Dir, d.cmd.Stderr, d.cmd.Stdout = dir, d.log, d.log
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.exited)
	}()
	return d, nil
}

// end kills the daemon, and shows the end of its log if the test has failed.
func (d *daemonProcess) end() {
	d.signal(syscall.SIGCONT)
	d.signal(syscall.SIGKILL)
	<-d.exited
	if d.t.Failed() {
		log := d.log.String()
		d.t.Logf("end of the log of the daemon with pid %d:\n%s", d.cmd.Process.Pid, log[max(0, len(log)-8000):])
	}
}

func (d *daemonProcess) signal(s os.Signal) { _ = d.cmd.Process.Signal(s) }

// wait waits for the end of the process and returns its exit code, -1 for a signal.
func (d *daemonProcess) wait() int {
	d.t.Helper()
	select {
	case <-d.exited:
	case <-time.After(patience):
		d.t.Fatalf("the daemon did not end within %v", patience)
	}
	return d.cmd.ProcessState.ExitCode()
}

var listening = regexp.MustCompile(`msg=listening http=(\S+)`)

// url is the daemon's HTTP address.
func (d *daemonProcess) url() string {
	d.t.Helper()
	var address string
	d.eventually("the daemon listens", func() (bool, string) {
		m := listening.FindStringSubmatch(d.log.String())
		if m != nil {
			address = m[1]
		}
		return m != nil, d.log.String()
	})
	return "http://" + address
}

// eventually is the function of that name; it gives up when the daemon has ended.
func (d *daemonProcess) eventually(what string, ok func() (bool, string)) {
	d.t.Helper()
	eventually(d.t, what, func() (bool, string) {
		select {
		case <-d.exited:
			d.t.Fatalf("%s: the daemon has ended with %v", what, d.err)
		default:
		}
		return ok()
	})
}

// get asks the daemon over HTTP.
func (d *daemonProcess) get(path string) (int, string) {
	d.t.Helper()
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(d.url() + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	var b bytes.Buffer
	_, _ = b.ReadFrom(r.Body)
	return r.StatusCode, b.String()
}

// ready waits until /readyz says so.
func (d *daemonProcess) ready() {
	d.t.Helper()
	d.eventually("readiness", func() (bool, string) {
		code, body := d.get("/readyz")
		return code == http.StatusOK, body
	})
}

var sinkStarted = regexp.MustCompile(`msg="sink process started".* pid=(\d+)`)

// sinkPID is the pid of the sink's newest process, by the daemon's log.
func (d *daemonProcess) sinkPID() int {
	d.t.Helper()
	all := sinkStarted.FindAllStringSubmatch(d.log.String(), -1)
	if len(all) == 0 {
		d.t.Fatalf("no sink was started:\n%s", d.log.String())
	}
	pid, _ := strconv.Atoi(all[len(all)-1][1])
	return pid
}

// running says whether a process runs; one that its parent has not reaped does not.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// shop is the application's side of the database.
type shop struct {
	t  *testing.T
	db *sql.DB
	n  int
}

func openShop(t *testing.T, dir string) *shop {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &shop{t: t, db: db}
}

// exec runs a statement.
func (s *shop) exec(query string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(query, args...); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

// insert commits n rows in one transaction, over so many keys. Ids are their number.
func (s *shop) insert(n, keys int) {
	s.t.Helper()
	s.insertLarge(n, keys, 0)
}

// insertLarge is insert with payloads that are larger by so many bytes.
func (s *shop) insertLarge(n, keys, size int) {
	s.t.Helper()
	tx, err := s.db.Begin()
	if err != nil {
		s.t.Fatal(err)
	}
	for range n {
		s.n++
		_, err := tx.Exec("INSERT INTO outbox (id, aggregateid, type, payload) VALUES (?, ?, 'order.placed', ?)",
			fmt.Sprintf("id-%06d", s.n), fmt.Sprintf("key-%d", s.n%keys), fmt.Sprintf(`{"n":%d,"pad":"%0*d"}`, s.n, size, 0))
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		s.t.Fatal(err)
	}
}

// count counts rows in a state.
func (s *shop) count(state string) int {
	s.t.Helper()
	var n int
	if err := s.db.QueryRow("SELECT count(*) FROM outbox WHERE state = ?", state).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// published waits until so many rows are published.
func (s *shop) published(n int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d rows published", n), func() (bool, string) {
		got := s.count("published")
		return got == n, strconv.Itoa(got)
	})
}

// sent is one line that a sink wrote.
type sent struct {
	ID                string          `json:"id"`
	Key               *string         `json:"key"`
	Payload           json.RawMessage `json:"payload"`
	PayloadBase64     *string         `json:"payload_base64"`
	Deliveries        int             `json:"deliveries"`
	PossibleDuplicate bool            `json:"possible_duplicate"`
}

// arrivals reads what the file sink wrote.
func arrivals(t *testing.T, dir string) []sent {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "out.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var list []sent
	data = data[:bytes.LastIndexByte(data, '\n')+1] // a line may be on its way
	for text := range strings.Lines(string(data)) {
		var s sent
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatalf("line %.200q: %v", text, err)
		}
		list = append(list, s)
	}
	return list
}

// audit checks what arrived against what was inserted: everything, in the order of each key, repeats marked. It returns
// how many arrivals were repeats.
func audit(t *testing.T, dir string, rows int) (duplicates int) {
	t.Helper()
	seen := map[string]bool{}
	last := map[string]string{}
	for _, a := range arrivals(t, dir) {
		if seen[a.ID] {
			duplicates++
			if !a.PossibleDuplicate {
				t.Errorf("row %s came again without the mark", a.ID)
			}
			continue
		}
		seen[a.ID] = true
		if a.Key != nil {
			if a.ID < last[*a.Key] {
				t.Errorf("key %s: row %s came after %s", *a.Key, a.ID, last[*a.Key])
			}
			last[*a.Key] = a.ID
		}
	}
	if len(seen) != rows {
		t.Errorf("%d different rows arrived, want %d", len(seen), rows)
	}
	return duplicates
}
