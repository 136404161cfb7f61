package host

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine is the longest piece of a plugin's output that is treated as one line, in bytes.
const maxLine = 32 << 10

// eachLine reads until the stream ends and hands over its lines without their ends; a longer one comes in pieces. It
// never stops reading before the end: a plugin must not block because of what it prints. The line is only valid during
// the call.
func eachLine(r io.Reader, handle func(line []byte)) {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			handle(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
