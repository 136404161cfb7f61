// Command server is the destination of the example: it appends each record to a file, one line each, before it says that
// it has it. A client logs in first, with the token that is in the variable LINE_TOKEN:
//
//	AUTH "token"                        250 welcome, or 535
//	PING                                250 here
//	PUT n "id" "key" "type" "payload"   250 stored, 501 for what is no record, 554 for a type that is not wanted
//
// n is the number of this send, from 1: the same id may come again. Texts are quoted as in Go, so a record is a line, and
// a line that was cut off is no record.
package main

import (
	"bufio"
	"context"
	"crypto/subtle"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

const maxLine = 64 << 20 // bytes

type server struct {
	token, refuse string
	file          *os.File
}

func main() {
	listen := flag.String("listen", "127.0.0.1:7070", "listen on this `ADDRESS`")
	path := flag.String("file", "arrived.txt", "append records to this `FILE`")
	refuse := flag.String("refuse", "", "refuse records of this `TYPE`")
	flag.Parse()
	file, err := os.OpenFile(*path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr())
	s := &server{token: os.Getenv("LINE_TOKEN"), refuse: *refuse, file: file}
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go s.serve(conn)
	}
}

// serve answers lines until the client leaves or is silent for a minute.
func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	known := false
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxLine)
	for conn.SetDeadline(time.Now().Add(time.Minute)) == nil && lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		if word == "AUTH" {
			token, err := strconv.Unquote(rest)
			known = err == nil && s.token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
		}
		if _, err := fmt.Fprintf(conn, "%s\r\n", s.answer(known, word, rest)); err != nil {
			return
		}
	}
}

func (s *server) answer(known bool, word, rest string) string {
	switch {
	case !known:
		return "535 who are you?"
	case word == "AUTH":
		return "250 welcome"
	case word == "PING":
		return "250 here"
	}
	kind, ok := parse(rest)
	switch {
	case word != "PUT" || !ok:
		return "501 this is no record"
	case s.refuse != "" && kind == s.refuse:
		return "554 records of type " + strconv.Quote(kind) + " are not wanted"
	}
	if _, err := s.file.WriteString(rest + "\n"); err != nil { // in one write, so that lines do not mix
		return "451 " + err.Error()
	}
	return "250 stored"
}

// parse finds a number and four quoted texts, and returns the third of these, the type.
func parse(record string) (kind string, ok bool) {
	number, rest, _ := strings.Cut(record, " ")
	if n, err := strconv.Atoi(number); err != nil || n < 1 {
		return "", false
	}
	var texts []string
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return "", false
		}
		text, _ := strconv.Unquote(quoted)
		texts = append(texts, text)
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	if len(texts) != 4 {
		return "", false
	}
	return texts[2], true
}
