//! The proof of several batches at the same time, each by its own session of the target.

use crate::agent::blocks::LeafRows;
use crate::agent::error::{Result, SplitError};
use crate::remote::copy::Bounds;
use crate::remote::pipe::{self, Lane};
use crate::remote::result::Rows;
use crate::remote::{Connection, FOR_EVER};
use crate::split::end::proof::Prover;
use crate::split::engine::session_pair::ask_each;
use crate::split::verify::{row_slices, rows};
use std::time::Duration;

/// A session that deletes a batch, and what has to show its rows on the other side; no prover if nothing has to. The
/// pairs of a table either all have one, or none has.
pub struct DeletePair<'a> {
    pub session: &'a mut Connection,
    pub prover: Option<Prover<'a>>,
}

/// A session of the source, whose transaction deletes a batch, and the prover that shows its rows.
struct ProofPair<'a, 'b> {
    source: &'a mut Connection,
    prover: &'a mut Prover<'b>,
}

/// Shows that the target has the rows of each batch, given as a leaf of the source and a condition. Returns the number
/// of rows of each, or None if there is nothing that has to show them. Each prover has checked its table before.
pub fn prove(pairs: &mut [DeletePair<'_>], batches: &[LeafRows<'_>]) -> Result<Vec<Option<u64>>> {
    let pairs = pairs.iter_mut();
    let pairs = pairs.filter_map(|DeletePair { session, prover }| {
        Some(ProofPair { source: session, prover: prover.as_mut()? })
    });
    let mut pairs: Vec<ProofPair<'_, '_>> = pairs.collect();
    if pairs.is_empty() {
        return Ok(vec![None; batches.len()]);
    }
    if pairs.len() != batches.len() {
        return Err(SplitError::Retry("a proof of each batch".into()));
    }
    let shown = prove_each(&mut pairs, batches)?;
    Ok(shown.into_iter().map(Some).collect())
}

fn prove_each(pairs: &mut [ProofPair<'_, '_>], batches: &[LeafRows<'_>]) -> Result<Vec<u64>> {
    let stall = Bounds::unlimited().stall;
    let brought = bring(pairs, batches)?;
    let asks = |question: Option<String>, brought: u64| question.filter(|_| brought > 0);
    let analyzed = |question: String| format!("ANALYZE pg_temp.verify_keys; {question}");
    let missing =
        ask(pairs, stall, |number, prover| asks(prover.missing_question().map(analyzed), brought[number]))?;
    let mut knows_changes = true;
    for (pair, answer) in pairs.iter_mut().zip(missing) {
        // This is reported once.
        pair.prover.knows_changes &= knows_changes;
        if let Some(answer) = answer {
            pair.prover.require_all(answer)?;
        }
        knows_changes &= pair.prover.knows_changes;
    }
    let same = ask(pairs, FOR_EVER, |number, prover| asks(prover.same_question(), brought[number]))?;
    for ((ProofPair { source, prover }, batch), answer) in pairs.iter_mut().zip(batches).zip(same) {
        if let Some(answer) = answer {
            prover.require_same(source, *batch, &answer)?;
        }
    }
    ask(pairs, stall, |_, _| Some("ROLLBACK".to_owned()))?;
    Ok(brought)
}

/// Sends keys and checksums of the rows. Returns the number of rows of each batch.
fn bring(pairs: &mut [ProofPair<'_, '_>], batches: &[LeafRows<'_>]) -> Result<Vec<u64>> {
    ask(pairs, Bounds::unlimited().stall, |_, _| Some(rows::FORGET_ON_TARGET.to_owned()))?;
    let Some(table) = pairs.first().map(|pair| pair.prover.table) else { return Ok(Vec::new()) };
    let lanes = pairs.iter_mut().zip(batches);
    let lanes = lanes.map(|(ProofPair { source, prover }, batch)| {
        let piece = rows::keys_from_source(table, *batch, !prover.accepts);
        Lane { source, target: prover.target, pieces: vec![piece] }
    });
    let copied = row_slices::counts(pipe::parallel(lanes.collect()));
    Ok(copied.map_err(|error| rows::without_values(error, table))?)
}

/// Asks the target a question in each session, if there is one for it.
fn ask(
    pairs: &mut [ProofPair<'_, '_>],
    timeout: Duration,
    question: impl Fn(usize, &Prover<'_>) -> Option<String>,
) -> Result<Vec<Option<Rows>>> {
    let questions: Vec<Option<String>> =
        pairs.iter().enumerate().map(|(number, pair)| question(number, pair.prover)).collect();
    let sessions = pairs.iter_mut().map(|pair| &mut *pair.prover.target);
    ask_each(sessions, timeout, |number| questions[number].clone())
}
