package shardmaster

import (
	"context"
	"encoding/json"
	"math/rand"
	"sync/atomic"
	"time"
)

const (
	// After so long without a notification the listener asks whether its session still lives.
	silence       = 30 * time.Second
	firstReopen   = 100 * time.Millisecond
	longestReopen = 2 * time.Second
)

// listener hears what the master says by itself, in a goroutine of its own.
type listener struct {
	open  Open
	heard atomic.Uint64
	stop  context.CancelFunc
	ended chan struct{}
}

// listen returns a listener that listens already.
func listen(ctx context.Context, open Open) (*listener, error) {
	session, err := openWith(ctx, open, "LISTEN shardmaster")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &listener{open: open, stop: stop, ended: make(chan struct{})}
	go l.run(ctx, session)
	return l, nil
}

// now is a number that is another one whenever routes or shards may have changed: after a
// notification, and before and after a time in which none could have been heard.
func (l *listener) now() uint64 { return l.heard.Load() }

func (l *listener) close() {
	l.stop()
	<-l.ended
}

func (l *listener) run(ctx context.Context, session Session) {
	defer close(l.ended)
	for pause := firstReopen; ; {
		if session != nil {
			l.hear(ctx, session)
			end(session)
			pause = firstReopen
			// What is said from now on nobody hears.
			l.heard.Add(1)
		}
		if !rest(ctx, &pause, longestReopen) {
			return
		}
		var err error
		if session, err = openWith(ctx, l.open, "LISTEN shardmaster"); err != nil {
			session = nil
			continue
		}
		// What was said before, nobody has heard.
		l.heard.Add(1)
	}
}

// hear listens until the session is lost or the context ends.
func (l *listener) hear(ctx context.Context, session Session) {
	for ctx.Err() == nil {
		payload, err := waitFor(ctx, session)
		switch {
		case err == nil && isChange(payload):
			l.heard.Add(1)
		case err != nil && !lives(ctx, session):
			return
		}
	}
}

func waitFor(ctx context.Context, session Session) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	return session.Wait(ctx)
}

func lives(ctx context.Context, session Session) bool {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	return session.Exec(ctx, "SELECT 1") == nil
}

// isChange says whether a payload means that routes are old; others may say anything on the channel.
func isChange(payload string) bool {
	var said struct {
		Event string `json:"event"`
	}
	return json.Unmarshal([]byte(payload), &said) == nil && (said.Event == "routing" || said.Event == "topology")
}

// rest waits about as long as pause says, which grows to the longest one. False: the context has
// ended before.
func rest(ctx context.Context, pause *time.Duration, longest time.Duration) bool {
	timer := time.NewTimer(time.Duration((0.5 + rand.Float64()) * float64(*pause)))
	defer timer.Stop()
	if *pause *= 2; *pause > longest {
		*pause = longest
	}
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
