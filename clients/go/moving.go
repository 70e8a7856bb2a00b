package shardmaster

import (
	"errors"
	"strings"
)

// IsMoving says whether this SQLSTATE means that the key moves: it has moved (SM001), is between two
// shards (SM002), or has moved since the transaction's snapshot (40001, as every other transaction
// that could not be serialized). The whole transaction begins again, from a new route.
func IsMoving(sqlstate string) bool {
	switch sqlstate {
	case "SM001", "SM002", "40001":
		return true
	}
	return false
}

// SQLState returns the SQLSTATE of a driver's error, however it is wrapped: that of the first error
// with a method SQLState, as those of pgx and lib/pq have. Empty if there is none: it is no answer of
// a server.
func SQLState(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

// isLost: not an answer of the master, but the end of its session, or none to be had.
func isLost(err error) bool {
	state := SQLState(err)
	return state == "" || strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P")
}
