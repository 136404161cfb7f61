// Package plugins is what the author of a sink imports. A sink is a program whose main is
//
//	func main() { plugins.Serve(mysink.New()) }
//
// built as connectd-sink-NAME and put into the daemon's plugin_dir; New returns a core.Sink. Package single makes one of a
// function that sends one record, and package settings reads its settings into a struct. Package sinktest proves that the
// sink behaves. All of it at work, in 40 lines: examples/custom-sink.
//
// In the process: the settings come through Configure and never through arguments or the environment. What is written
// to slog, the log package, stderr or stdout ends up in the daemon's log. A panic ends the process, as in any Go program,
// and a new one is started; a record that brings it about again and again is found and buried, and the others go on.
//
// The package holds both halves of the boundary, so that there is one place where a record becomes bytes and bytes
// become a record: Serve with the gRPC server for the plugin's process, and Client for the daemon, whose package host
// finds, starts and supervises the processes. The bytes are ordinary protobuf (plugins/proto, PROTOCOL.md).
package plugins
