package publisher

import (
	"net"
	"time"
)

// wire is the TCP connection beneath TLS and AMQP. The client library does not bound its writes, and holds locks while it
// writes that its own shutdown needs.
type wire struct {
	*net.TCPConn
	patience time.Duration // for a write
}

// Write fails when it takes longer than a blocked broker is waited for.
func (w *wire) Write(p []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(w.patience)); err != nil {
		return 0, err
	}
	return w.TCPConn.Write(p)
}

// kill closes the connection at once. What was written and has not left is thrown away, so that the broker does not get it
// after the same messages on a newer connection.
func (w *wire) kill() {
	_ = w.SetLinger(0)
	_ = w.Close()
}
