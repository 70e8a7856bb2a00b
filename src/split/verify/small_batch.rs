//! Comparison of small tables, several in one message to each pair of sessions.

use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::catalog::split::Plan;
use crate::catalog::verification::VerificationStatus;
use crate::remote::Together;
use crate::server::wait::{self, WorkerStatus};
use crate::split::engine::session_pair::{SessionPair, ask_both};
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::verification::Run;
use crate::split::table::SplitTable;
use crate::split::verify::slice::{pair_count, position_of, reach_compared};
use crate::split::verify::whole;

/// The greatest number of tables that one pair of sessions is asked about in one message.
const MOST_TOGETHER: usize = 32;
/// The cost of asking about one table, expressed in bytes of it.
const TO_ASK: i64 = 64 << 10;

/// The number of tables of a message to one pair.
pub fn size() -> Together {
    Together::up_to(MOST_TOGETHER)
}

/// Compares the small tables that come first, and returns the bytes of their rows. Returns None if the first one is not
/// small, or differs between both sides.
pub fn compare(
    plan: &Plan,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    run: &mut Run,
    size: &mut Together,
) -> Result<Option<i64>> {
    let (pairs, most) = (pair_count(&sessions.streams), size.begin());
    let pending = run.tables.iter().take_while(|table| table.status == VerificationStatus::Pending);
    let next = pending.map_while(|table| position_of(tables, table.ordinal));
    let positions: Vec<usize> = next.take(most.saturating_mul(pairs)).collect();
    if positions.is_empty() {
        return Ok(None);
    }
    wait::report_as(WorkerStatus::Working, &format!("comparing {}", tables[positions[0]].source.name));
    let groups = groups(&whole::sizes(sessions, tables, &positions)?, pairs, most, whole::most());
    let mut left = positions.as_slice();
    let mut of_each = Vec::new();
    for count in groups {
        let (these, behind) = left.split_at(count.min(left.len()));
        of_each.push(these);
        left = behind;
    }
    let mut pairs: Vec<SessionPair<'_>> = sessions.pairs().take(of_each.len()).collect();
    let message = |positions: &&[usize]| {
        [Side::Source, Side::Target].map(|side| whole::together(&plan.scope, tables, positions, side))
    };
    let messages: Vec<[String; 2]> = of_each.iter().map(message).collect();
    let answers = ask_both(&mut pairs, &messages)?;
    let mut compared = Vec::new();
    for ((pair, positions), answers) in pairs.into_iter().zip(&of_each).zip(answers) {
        compared.extend(whole::read_together(pair, positions.len(), answers)?);
    }
    size.end();
    reach_compared(&sessions.streams)?;
    let mut bytes = None;
    for size in compared.into_iter().map_while(|size| size) {
        let Some(table) = run.tables.first().cloned() else { break };
        run.note_same(table, size.rows, size.bytes);
        bytes = Some(bytes.unwrap_or(0) + size.bytes);
    }
    Ok(bytes)
}

/// Returns how many of the first tables each pair gets, of these sizes, so that all have about as much to do, and none
/// more than so many tables.
fn groups(sizes: &[i64], pairs: usize, of_each: usize, most: i64) -> Vec<usize> {
    let limit = most.saturating_mul(i64::try_from(pairs).unwrap_or(1));
    let mut sum = 0_i64;
    let fits = |size: &&i64| {
        sum = sum.saturating_add(**size);
        **size <= most && sum <= limit
    };
    let weights: Vec<i64> = sizes.iter().take_while(fits).map(|size| size.saturating_add(TO_ASK)).collect();
    let share = weights.iter().sum::<i64>() / i64::try_from(pairs).unwrap_or(1);
    let (mut groups, mut weight) = (Vec::<usize>::new(), 0_i64);
    for next in weights {
        let is_full = groups.len() == pairs;
        match groups.last_mut() {
            Some(count) if weight < share && *count < of_each => *count += 1,
            Some(_) if is_full => break,
            Some(_) | None => {
                groups.push(1);
                weight = 0;
            }
        }
        weight += next;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::groups;

    #[test]
    fn small_tables_are_shared_out_in_their_order() {
        assert_eq!(groups(&[10; 6], 3, 32, 1000), [2, 2, 2]);
        assert_eq!(groups(&[10; 7], 3, 32, 1000), [3, 3, 1]);
        // The first table is as big as all others.
        assert_eq!(groups(&[10 << 20, 1, 1, 1], 2, 32, 16 << 20), [1, 3]);
        // A table that does not fit is left out, with all behind it.
        assert_eq!(groups(&[1, 1, 17 << 20, 1], 2, 32, 16 << 20), [1, 1]);
        assert_eq!(groups(&[17 << 20, 1], 2, 32, 16 << 20), Vec::<usize>::new());
        assert_eq!(groups(&[0; 100], 2, 32, 16 << 20), [32, 32]);
        // One pair gets all, as far as they fit.
        assert_eq!(groups(&[10; 4], 1, 4, 1000), [4]);
        assert_eq!(groups(&[10, 10, 1000, 10], 1, 4, 1000), [2]);
        assert_eq!(groups(&[10], 2, 1, 1000), [1]);
    }
}
