package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/connectd/connectd/plugins"
)

// Spec says which process serves a connector's sink and how it is started.
type Spec struct {
	Connector string // for logs, and told to the process
	Plugin    string // the sink's name, for logs
	// Path and Args are the program: what Find returned, or this binary itself for a bundled sink; absolute. No secret
	// belongs into Args. The process has a working directory of its own, so no relative path does either.
	Path string
	Args []string
	// SHA256, if not empty, is the program's checksum in hex. The very file that was hashed is the one that runs.
	SHA256 string
	// Env adds to the few variables a plugin gets: "NAME" passes the daemon's own value on, "NAME=value" sets one.
	Env []string
	// StartTimeout is how long the process may take from its start until it has described itself; 0: 10 s.
	StartTimeout time.Duration
	// StandBy is how often at least a sink is opened anew whose destination another one has (core.ErrInUse), so that it
	// takes over soon when that one is gone; 0: 10 s.
	StandBy time.Duration
	// RuntimeDir holds a private directory for each running process, for its socket; "": one in the temporary
	// directory. Several daemons may share it.
	RuntimeDir string
	// Settings is the sink's settings, a JSON object, secrets included. They go nowhere but into Configure. Nil: the
	// process waits until Sink.Configure brings them.
	Settings []byte
}

const (
	defaultStartTimeout = 10 * time.Second
	defaultStandBy      = 10 * time.Second
)

func (s *Spec) startTimeout() time.Duration {
	if s.StartTimeout <= 0 {
		return defaultStartTimeout
	}
	return s.StartTimeout
}

func (s *Spec) standBy() time.Duration {
	if s.StandBy <= 0 {
		return defaultStandBy
	}
	return s.StandBy
}

func (s *Spec) runtimeDir() string {
	if s.RuntimeDir != "" {
		return s.RuntimeDir
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("connectd-%d", os.Getuid()))
}

// passedOn are the variables of the daemon's environment that every plugin gets. They say where to find certificates
// and proxies and how to format; none holds a secret.
var passedOn = []string{
	"LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}

// env is the plugin's environment without what the handshake adds.
func (s *Spec) env() []string {
	env := []string{plugins.ConnectorVariable + "=" + s.Connector}
	for _, name := range passedOn {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for _, e := range s.Env {
		if strings.Contains(e, "=") {
			env = append(env, e)
		} else if value, ok := os.LookupEnv(e); ok {
			env = append(env, e+"="+value)
		}
	}
	return env
}
