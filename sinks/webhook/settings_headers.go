package webhook

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// names checks the headers that are named in the settings.
func (k *checker) names(c *config) {
	set := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		at, canonical := headerPointer(name), http.CanonicalHeaderKey(name)
		switch reserved := c.reservedHeader(canonical); {
		case !token(name):
			k.Wrong(at, "is no name of a header")
		case reserved != "":
			k.Wrong(at, "cannot be set: it %s", reserved)
		case set[canonical]:
			k.Wrong(at, "is set twice, in capitals and without")
		}
		set[canonical] = true
	}
	for i, name := range c.ForwardHeaders {
		at, canonical := fmt.Sprintf("/forward_headers/%d", i), http.CanonicalHeaderKey(name)
		switch reserved := c.reservedHeader(dashed(name)); {
		case name == "*" && len(c.ForwardHeaders) == 1:
		case name == "*":
			k.Wrong(at, "must be alone: it stands for all headers")
		case !token(name):
			k.Wrong(at, "is no name of a header")
		case canonical == headerContentType:
			k.Wrong(at, "need not be listed: the row's content-type is the request's")
		case reserved != "":
			k.Wrong(at, "cannot be forwarded: it %s", reserved)
		case set[canonical]:
			k.Wrong(at, "is set in headers too")
		}
	}
	if i := c.Idempotency; i != nil {
		own := *c
		own.Idempotency = nil
		reserved := own.reservedHeader(http.CanonicalHeaderKey(i.Name))
		k.WrongIf(!token(i.Name), "/idempotency_header/name", "must be the name of a header")
		k.WrongIf(reserved != "", "/idempotency_header/name", "cannot be this header: it %s", reserved)
	}
}
