package shardmaster

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// answer is an error as drivers make it.
type answer string

func (a answer) Error() string    { return "an answer" }
func (a answer) SQLState() string { return string(a) }

func TestSQLStateOfWrapped(t *testing.T) {
	if state := SQLState(fmt.Errorf("the order of acme: %w", answer("SM001"))); state != "SM001" {
		t.Error(state)
	}
	for _, err := range []error{nil, errors.New("no answer")} {
		if SQLState(err) != "" {
			t.Error(err)
		}
	}
}

func TestWhatIsNoAnswer(t *testing.T) {
	for err, lost := range map[error]bool{
		errors.New("no route to host"): true, context.DeadlineExceeded: true, answer("08006"): true,
		answer("57P01"): true, answer("57014"): false, answer("42704"): false, answer("SM002"): false,
	} {
		if isLost(err) != lost {
			t.Errorf("%v %s: not %v", err, SQLState(err), lost)
		}
	}
	gone, cancel := context.WithCancel(context.Background())
	if isAnswered(gone, errors.New("no route to host")) || isAnswered(gone, answer("57P01")) {
		t.Error("nothing more is tried")
	}
	cancel()
	if !isAnswered(gone, errors.New("no route to host")) {
		t.Error("somebody who has gone away is waited for")
	}
}

func TestWhatIsAChange(t *testing.T) {
	for said, change := range map[string]bool{
		`{"event": "routing", "keyspace": "default", "version": 3}`: true, `{"event":"topology"}`: true,
		`{"event": "split"}`: false, `[]`: false, `null`: false, `routing`: false, ``: false, `{"event": 1}`: false,
	} {
		if isChange(said) != change {
			t.Errorf("%s: not %v", said, change)
		}
	}
}
