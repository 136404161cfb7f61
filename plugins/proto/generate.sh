#!/bin/sh
# Writes sink.pb.go and sink_grpc.pb.go. Needs protoc in PATH; the Go generators come from go.mod.
set -eu
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin" google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
PATH="$bin:$PATH" protoc --go_out=. --go_opt=paths=source_relative \
	--go-grpc_out=. --go-grpc_opt=paths=source_relative sink.proto
# The version of protoc says nothing about the code; without it any protoc gives the same files.
sed -i '/^\/\/ .*protoc  *v/d' sink.pb.go sink_grpc.pb.go
