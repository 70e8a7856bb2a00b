package shardmaster

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// Sessions for questions: one about a key that is just being cut over waits at the master, and
	// those about other keys must not wait behind it.
	mostSessions = 4
	connectLimit = 10 * time.Second
	closeLimit   = time.Second
	// For a session for questions: none waits without an end for a master that is busy.
	settings = "SET statement_timeout = '30s'"
)

// ErrClosed is what a router says that has been closed.
var ErrClosed = errors.New("shardmaster: the router is closed")

// pool has the sessions for questions.
type pool struct {
	open Open
	// One for each session that is in use.
	slots  chan struct{}
	mutex  sync.Mutex
	idle   []Session
	closed bool
}

func newPool(open Open) *pool {
	return &pool{open: open, slots: make(chan struct{}, mostSessions)}
}

// take returns a session, which is to be given back.
func (p *pool) take(ctx context.Context) (Session, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	session, err := p.idleOrNew(ctx)
	if err != nil {
		<-p.slots
	}
	return session, err
}

func (p *pool) idleOrNew(ctx context.Context) (Session, error) {
	p.mutex.Lock()
	closed, last := p.closed, len(p.idle)-1
	if !closed && last >= 0 {
		session := p.idle[last]
		p.idle = p.idle[:last]
		p.mutex.Unlock()
		return session, nil
	}
	p.mutex.Unlock()
	if closed {
		return nil, ErrClosed
	}
	return openWith(ctx, p.open, settings)
}

// give takes a session back. With one that is lost all others are not trusted any more: the next
// question is asked on a new one.
func (p *pool) give(session Session, lost bool) {
	p.mutex.Lock()
	ending := []Session{}
	if lost || p.closed {
		ending = append(p.idle, session)
		p.idle = nil
	} else {
		p.idle = append(p.idle, session)
	}
	p.mutex.Unlock()
	endAll(ending)
	<-p.slots
}

// close ends what is idle at once, and what is in use when it is given back.
func (p *pool) close() {
	p.mutex.Lock()
	ending := p.idle
	p.idle, p.closed = nil, true
	p.mutex.Unlock()
	endAll(ending)
}

func endAll(sessions []Session) {
	for _, session := range sessions {
		end(session)
	}
}

// end says good-bye, but does not wait for a master that does not listen.
func end(session Session) {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = session.Close(ctx)
}

// openWith opens a session and runs statements on it.
func openWith(ctx context.Context, open Open, sql string) (Session, error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	session, err := open(ctx)
	if err != nil {
		return nil, err
	}
	if err := session.Exec(ctx, sql); err != nil {
		end(session)
		return nil, err
	}
	return session, nil
}
