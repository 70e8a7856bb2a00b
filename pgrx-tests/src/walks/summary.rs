//! The numbers of a walk.

use super::walk::Walk;
use crate::records::{self, Fact};

impl Walk {
    /// Writes the record for docs/internals/reliability.md.
    pub fn keep(&self) {
        let splits = &self.model.splits;
        let back =
            splits.iter().filter(|split| split.seen.reverse_of.is_some() && split.seen.is_finished).count();
        let faults = if self.has_faults { "with" } else { "without" };
        let written = self.writers.shared.acknowledged.load(std::sync::atomic::Ordering::Relaxed);
        let facts: [Fact<'_>; 6] = [
            ("faults", &faults),
            ("seconds", &self.began.elapsed().as_secs()),
            ("steps", &self.trail.len()),
            ("splits", &splits.len()),
            ("back", &back),
            ("acknowledged", &written),
        ];
        records::keep("walk", &facts);
    }

    /// Returns the walk's numbers in one line.
    pub fn summary(&self) -> String {
        let shared = &self.writers.shared;
        let written = shared.acknowledged.load(std::sync::atomic::Ordering::Relaxed);
        let refusals = super::writers::lock(&shared.refusals).clone();
        let splits = &self.model.splits;
        let finished = splits.iter().filter(|split| split.seen.is_finished).count();
        let (steps, planned, took) = (self.trail.len(), splits.len(), self.began.elapsed());
        format!(
            "{steps} steps in {took:.1?}, {planned} splits, {finished} finished, {written} writes, refused {refusals:?}"
        )
    }
}
