//! Comparison of the rows of slices at the same time, each by its own pair of sessions. Differing rows are reported one
//! slice after the other: there are few of those.

use crate::agent::blocks::LeafRows;
use crate::agent::error::Result;
use crate::catalog::split::Plan;
use crate::guc;
use crate::remote::copy::Copied;
use crate::remote::pipe::{self, FailedPiece, Lane};
use crate::remote::{FOR_EVER, RemoteError};
use crate::split::engine::session_pair::{SessionPair, ask_each};
use crate::split::engine::sessions::EngineSessions;
use crate::split::table::SplitTable;
use crate::split::verify::rows::{self, Sides, SliceResult};

/// Rows of one leaf.
pub struct Slice {
    /// The number of the pair that compares them: 0 for the step's, then the streams'.
    pub lane: usize,
    pub leaf: String,
    pub condition: String,
}

impl Slice {
    fn rows(&self) -> LeafRows<'_> {
        LeafRows { leaf: &self.leaf, condition: &self.condition }
    }
}

/// Compares rows of a table's leaves on the source, each looked for on the target. `unless` is a condition over their
/// keys `k` under which a difference is not reported.
pub fn of_source(
    plan: &Plan,
    sessions: &mut EngineSessions,
    table: &SplitTable,
    slices: &[Slice],
    unless: &str,
) -> Result<Vec<SliceResult>> {
    let mut pairs = of_slices(sessions.pairs(), slices);
    ask_each(pairs.iter_mut().map(|pair| &mut *pair.target), guc::remote_timeout(), |_| {
        Some(rows::FORGET_ON_TARGET.to_owned())
    })?;
    let lanes = pairs.iter_mut().zip(slices).map(|(pair, slice)| Lane {
        source: pair.source,
        target: pair.target,
        pieces: vec![rows::keys_from_source(table, slice.rows(), true)],
    });
    let copied =
        counts(pipe::parallel(lanes.collect())).map_err(|error| rows::without_values(error, table))?;
    let question = format!("ANALYZE pg_temp.verify_keys; {}", rows::looked(plan, table, unless));
    let answers = ask_each(pairs.iter_mut().map(|pair| &mut *pair.target), FOR_EVER, |number| {
        (copied[number] > 0).then(|| question.clone())
    })?;
    let mut all = Vec::new();
    for ((SessionPair { source, target }, slice), answer) in pairs.into_iter().zip(slices).zip(answers) {
        let mut sides = Sides { plan, table, source, target };
        all.push(match answer {
            Some(rows) => sides.tell(&rows, slice.rows(), unless)?,
            None => SliceResult::default(),
        });
    }
    Ok(all)
}

/// Finds rows of its leaves on the target that the source does not have.
pub fn of_target(
    plan: &Plan,
    sessions: &mut EngineSessions,
    table: &SplitTable,
    slices: &[Slice],
) -> Result<Vec<SliceResult>> {
    let mut pairs = of_slices(sessions.pairs(), slices);
    ask_each(pairs.iter_mut().map(|pair| &mut *pair.source), guc::remote_timeout(), |_| {
        Some(rows::FORGET_ON_SOURCE.to_owned())
    })?;
    // These are copied from the target.
    let lanes = pairs.iter_mut().zip(slices).map(|(pair, slice)| Lane {
        source: pair.target,
        target: pair.source,
        pieces: vec![rows::keys_from_target(table, slice.rows())],
    });
    let copied = counts(pipe::parallel(lanes.collect()))?;
    let question = rows::unknown_to_source(plan, table);
    let answers = ask_each(pairs.iter_mut().map(|pair| &mut *pair.source), FOR_EVER, |number| {
        (copied[number] > 0).then(|| question.clone())
    })?;
    let mut all = Vec::new();
    for (pair, answer) in pairs.into_iter().zip(answers) {
        let mut compared = SliceResult::default();
        if let Some(found) = answer {
            rows::note(pair.source, table, found, &mut compared)?;
        }
        all.push(compared);
    }
    Ok(all)
}

/// Returns the pairs of these slices, in their order.
fn of_slices<'a>(pairs: impl Iterator<Item = SessionPair<'a>>, slices: &[Slice]) -> Vec<SessionPair<'a>> {
    let has_slice = |lane: usize| slices.iter().any(|slice| slice.lane == lane);
    pairs.enumerate().filter(|(lane, _)| has_slice(*lane)).map(|(_, pair)| pair).collect()
}

/// Returns how many rows each pair has copied, of one piece.
pub fn counts(
    copied: std::result::Result<Vec<Vec<Copied>>, FailedPiece>,
) -> std::result::Result<Vec<u64>, RemoteError> {
    let copied = copied.map_err(|failed| failed.error)?;
    Ok(copied.iter().map(|pieces| pieces.iter().map(|piece| piece.rows).sum()).collect())
}
