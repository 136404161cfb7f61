package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxTorn bounds how far back a file is searched for the end of its last whole line; it is well above the longest line
// the sink can be asked to write.
const maxTorn = 512 << 20

// lastLineEnd returns the offset behind the last newline of a file of the given size, which is size itself when the file
// ends with a whole line or is empty. What is behind it must look like the beginning of a line of this sink, or like
// the zeros that a power failure leaves: it is going to be removed, and must not be somebody's photo.
func lastLineEnd(r io.ReaderAt, size, limit int64) (int64, error) {
	chunk := make([]byte, 64<<10)
	end := size
	for end > 0 {
		if size-end >= limit {
			return 0, fmt.Errorf("no line ends in its last %d MiB: it is not a file of JSON lines", limit>>20)
		}
		part := chunk[:min(int64(len(chunk)), end)]
		if _, err := r.ReadAt(part, end-int64(len(part))); err != nil {
			return 0, fmt.Errorf("read it: %w", plain(err))
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			end -= int64(len(part) - i - 1)
			break
		}
		end -= int64(len(part))
	}
	if end == size {
		return size, nil
	}
	head := make([]byte, min(size-end, int64(len(lineStart))))
	if _, err := r.ReadAt(head, end); err != nil {
		return 0, fmt.Errorf("read it: %w", plain(err))
	}
	if head[0] != 0 && !strings.HasPrefix(lineStart, string(head)) {
		return 0, errors.New("its last line has no end and was not written by this sink; end it with a newline, or choose another path")
	}
	return end, nil
}
