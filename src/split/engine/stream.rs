//! A worker's streams: sessions in which rows are copied or compared beside those of its steps.

use crate::remote::Connection;

/// A pair of sessions.
pub struct StreamSessions {
    pub reader: Connection,
    pub writer: Connection,
    /// The table for which the sessions have what a comparison of rows needs.
    pub prepared: Option<i32>,
}

/// What a worker knows of its streams.
#[derive(Default)]
pub struct Streams {
    pub open: Vec<StreamSessions>,
    /// The number that the next step may use.
    pub wished: usize,
    /// The number that the cores of the smaller side permit. `None` if they were not asked.
    pub by_cores: Option<usize>,
    /// The number of locks that all of them may take. `None` if the servers were not asked.
    pub room: Option<usize>,
    /// Fewer are used for want of locks, which was reported.
    pub lacks_locks: bool,
    /// The number of the first ones that see what the step sees.
    pub held: usize,
    /// No more could be opened.
    pub is_short: bool,
    /// The next step copies alone: another session was in the way of the last step's streams.
    pub rest: bool,
}

impl Streams {
    /// Returns the streams that copy beside the step, for a round of this many chunks.
    pub fn beside(&mut self, chunks: usize) -> &mut [StreamSessions] {
        let streams = chunks.saturating_sub(1).min(self.open.len());
        &mut self.open[..streams]
    }

    /// Closes their sessions: nothing is left to do for them.
    pub fn end(&mut self) {
        self.open.clear();
        (self.wished, self.held) = (0, 0);
        // There may be room for more when they are wanted again.
        self.is_short = false;
    }
}
