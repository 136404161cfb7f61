// Package proto is the wire form of the sink protocol, generated from sink.proto. Authors of sinks in Go need package
// plugins only; in another language, sink.proto and PROTOCOL.md.
package proto

// The generators are pinned as tools in go.mod; protoc itself is Debian's protobuf-compiler (any 3.21 or later does,
// since it only parses).
//go:generate sh generate.sh
