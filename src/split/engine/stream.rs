//! A worker's streams: sessions in which rows are copied or compared beside those of its steps.

use crate::remote::Connection;

/// A pair of them.
pub struct StreamSessions {
    pub reader: Connection,
    pub writer: Connection,
    /// Of which table it has what a comparison of rows needs.
    pub prepared: Option<i32>,
}

/// What a worker knows of its streams.
#[derive(Default)]
pub struct Streams {
    pub open: Vec<StreamSessions>,
    /// As many as the next step may have use for.
    pub wished: usize,
    /// As many as there are to be, by the cores of the smaller side; None: it has not been asked.
    pub by_cores: Option<usize>,
    /// Locks that all of them may take; None: the servers have not been asked.
    pub room: Option<usize>,
    /// There are fewer of them for want of locks, which was said.
    pub lacks_locks: bool,
    /// The first ones, as many as see what the step sees.
    pub held: usize,
    /// No more could be opened than there are.
    pub is_short: bool,
    /// The next step copies by itself: somebody was in the way of the last one's streams.
    pub rest: bool,
}

impl Streams {
    /// Those that copy beside the step, of so many chunks of a round.
    pub fn beside(&mut self, chunks: usize) -> &mut [StreamSessions] {
        let streams = chunks.saturating_sub(1).min(self.open.len());
        &mut self.open[..streams]
    }

    /// Nothing is left to do for them: their sessions are closed.
    pub fn end(&mut self) {
        self.open.clear();
        (self.wished, self.held) = (0, 0);
        // There may be room for more when they are wanted again.
        self.is_short = false;
    }
}
