//! The outcome of a step.

use super::chunk::Chunk;
use crate::agent::state::progress::CopyProgress;
use crate::remote::copy::Copied;
use std::time::Duration;

/// The outcome of a step.
pub struct StepOutcome {
    pub progress: CopyProgress,
    /// The number of changes in the step's window.
    pub changes: i64,
    /// The numbers of the step's chunks, of their rows and of their bytes.
    pub chunks: u64,
    pub rows: u64,
    pub bytes: u64,
    /// The time that copying the rows of the window took. The latency of messages, however few rows there are, is left
    /// out: a distant target is not behind.
    pub lag: Duration,
    /// Why the copy starts again, if it does.
    pub restarted: Option<String>,
    /// Chunks that are copied once the step is committed.
    pub round: Option<Round>,
}

impl StepOutcome {
    /// Adds more copied chunks.
    pub fn add(&mut self, copied: &[Copied]) {
        for Copied { rows, bytes } in copied {
            self.chunks += 1;
            self.rows += rows;
            self.bytes += bytes;
        }
    }

    /// Whether the step found nothing to do and so commits nothing.
    pub fn is_empty(&self) -> bool {
        self.chunks == 0 && self.changes == 0 && self.restarted.is_none() && self.round.is_none()
    }
}

/// Chunks that are copied at the same time once a step is committed: the first by the step's own sessions, each other
/// one by a stream.
pub struct Round {
    pub chunks: Vec<Chunk>,
}
