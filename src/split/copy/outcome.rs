//! What a step has done.

use super::round::Round;
use crate::agent::state::progress::CopyProgress;
use crate::remote::copy::Copied;
use std::time::Duration;

/// What a step has done.
pub struct StepOutcome {
    pub progress: CopyProgress,
    /// Changes in the step's window.
    pub changes: i64,
    /// The step's chunks, their rows and bytes.
    pub chunks: u64,
    pub rows: u64,
    pub bytes: u64,
    /// Time that the rows of the window took to come over. That messages take their time,
    /// however few rows there are, is left out: a distant target is not behind.
    pub lag: Duration,
    /// Why the copy starts again, if it does.
    pub restarted: Option<String>,
    /// Chunks that are copied once the step is committed.
    pub round: Option<Round>,
}

impl StepOutcome {
    /// More chunks were copied.
    pub fn add(&mut self, copied: &[Copied]) {
        for Copied { rows, bytes } in copied {
            self.chunks += 1;
            self.rows += rows;
            self.bytes += bytes;
        }
    }

    /// A step that found nothing to do commits nothing.
    pub fn is_empty(&self) -> bool {
        self.chunks == 0 && self.changes == 0 && self.restarted.is_none() && self.round.is_none()
    }
}
