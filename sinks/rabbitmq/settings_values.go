package rabbitmq

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// kind is what a header's text is turned into.
type kind string

// UnmarshalText reads the kind's name.
func (k *kind) UnmarshalText(text []byte) error {
	switch kind(text) {
	case "int", "float", "bool":
		*k = kind(text)
		return nil
	}
	return errors.New("must be one of int, float, bool")
}

// value is the text as a value of the kind. The error does not repeat the text.
func (k kind) value(text string) (any, error) {
	var v any
	var err error
	switch k {
	case "int":
		v, err = strconv.ParseInt(text, 10, 64)
	case "float":
		var f float64
		if f, err = strconv.ParseFloat(text, 64); math.IsNaN(f) || math.IsInf(f, 0) {
			err = strconv.ErrRange // RabbitMQ closes the connection when it gets one
		}
		v = f
	case "bool":
		v, err = text == "true", nil
		if text != "true" && text != "false" {
			err = strconv.ErrSyntax
		}
	default:
		return text, nil
	}
	if err != nil {
		return nil, fmt.Errorf("is no %s", k)
	}
	return v, nil
}

// argument is a value of a declaration's arguments: a whole number, true or false where the text looks like one, as those of
// x-max-length and x-single-active-consumer have to be; else a string.
type argument struct{ value any }

// UnmarshalText takes any text.
func (a *argument) UnmarshalText(text []byte) error {
	a.value = string(text)
	for _, k := range []kind{"int", "bool"} {
		if v, err := k.value(string(text)); err == nil {
			a.value = v
		}
	}
	return nil
}

// Numeric says that a bare number is one.
func (a *argument) Numeric() {}
