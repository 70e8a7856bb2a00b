//! A copy that waits: for the target's standbys, which must replay what it writes while their readers see older and
//! older rows; and for the result of the operator's own query. Changes continue to be applied meanwhile.
//!
//! The lag of a standby is measured by what the target had written at earlier reads: the times in pg_stat_replication
//! stop when replay stops.

use crate::agent::error::Result;
use crate::catalog::split;
use crate::remote::Connection;
use crate::server::txn::transaction;
use crate::{clean, guc};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Positions in the log as numbers; for the slowest standby also its name. A role that may not see the positions does
/// not see the state either.
const STANDBYS: &str = "
    SELECT pg_current_wal_lsn() - '0/0', min(replay_lsn - '0/0'),
           (array_agg(application_name ORDER BY replay_lsn))[1], count(*) > count(state)
      FROM pg_stat_replication WHERE state IS NULL OR state IN ('streaming', 'catchup')";

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// The greatest number of remembered reads: the oldest show how far back a standby is.
const MOST: usize = 600;

/// What a worker remembers of the target's standbys.
#[derive(Default)]
pub struct Throttle {
    looked: Option<Instant>,
    /// When the target had written this much; the slowest standby has replayed none of these.
    written: VecDeque<(Instant, u64)>,
    why: Option<String>,
    has_told: bool,
    /// Clients wait for what is copied.
    is_off: bool,
}

impl Throttle {
    /// Disables the throttle: after the decision no client is served before the last row has come, so standbys do not
    /// count.
    pub fn switch_off(&mut self) {
        *self = Throttle { is_off: true, ..Throttle::default() };
    }

    /// Returns what the copy has to wait for.
    pub fn reason(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Reads the standbys and runs the operator's query, at most once a second, in the target's open transaction.
    pub fn look(&mut self, target: &mut Connection, split: i64) -> Result<()> {
        if self.is_off {
            return Ok(());
        }
        let (most, query) = (guc::max_standby_lag(), guc::throttle_query());
        if most.is_none() && query.is_none() {
            *self = Throttle::default();
            return Ok(());
        }
        let between = most.map_or(BETWEEN_LOOKS, |most| BETWEEN_LOOKS.min(most));
        if self.looked.is_some_and(|looked| looked.elapsed() < between) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let standby = most.map(|most| self.ask_standbys(target, split, most)).transpose()?.flatten();
        let said = query.map(|query| self.ask_operator(target, split, &query)).transpose()?.flatten();
        self.why = standby.or(said);
        Ok(())
    }

    fn ask_standbys(
        &mut self,
        target: &mut Connection,
        split: i64,
        most: Duration,
    ) -> Result<Option<String>> {
        let rows = target.run(STANDBYS)?;
        let cells = rows.rows.into_iter().next().unwrap_or_default();
        let cell = |n: usize| cells.get(n).and_then(Option::as_deref);
        let position = |n: usize| cell(n).and_then(|text| text.parse::<u64>().ok());
        if cell(3) == Some("t") {
            self.tell(
                split,
                &format!(
                    "shardmaster.max_standby_lag has no effect: the mover cannot see the lag of the standbys of shard \"{}\"; GRANT pg_monitor to it",
                    target.shard()
                ),
            );
        }
        let lag = self.note(Instant::now(), position(0), position(1));
        Ok((lag > most).then(|| {
            format!(
                "standby \"{}\" of shard \"{}\", {} s behind (shardmaster.max_standby_lag)",
                cell(2).unwrap_or_default(),
                target.shard(),
                lag.as_secs()
            )
        }))
    }

    /// Runs the operator's query. What it changes is undone: the transaction is the step's. A query that fails, or
    /// takes longer than a second, does not delay the copy, and the split's history reports it.
    fn ask_operator(&mut self, target: &mut Connection, split: i64, query: &str) -> Result<Option<String>> {
        let query = query.trim().trim_end_matches(';');
        target.run("SAVEPOINT throttle; SET LOCAL statement_timeout = '1s'")?;
        // It is run as one statement, whatever it contains.
        let answer = target
            .query(&format!("SELECT said::text FROM (\n{query}\n) AS operator (said) LIMIT 1"), &[])
            .map(|rows| rows.scalar().map(clean::printable));
        let shard = target.shard().to_owned();
        let said = match answer {
            Ok(said) => said,
            Err(error) if error.sqlstate.is_some() => {
                self.tell(
                    split,
                    &format!("shardmaster.throttle_query has no effect on shard \"{shard}\": {error}"),
                );
                None
            }
            Err(error) => return Err(error.into()),
        };
        target.run("ROLLBACK TO SAVEPOINT throttle; RELEASE SAVEPOINT throttle")?;
        Ok(match said.as_deref() {
            None | Some("" | "f" | "false") => None,
            Some("t" | "true") => Some(format!("shardmaster.throttle_query on shard \"{shard}\"")),
            Some(text) => Some(format!("shardmaster.throttle_query on shard \"{shard}\": {text}")),
        })
    }

    /// Reports a text once: a copy reads again and again.
    fn tell(&mut self, split: i64, text: &str) {
        if !std::mem::replace(&mut self.has_told, true) {
            transaction(|| split::event(split, None, None, text));
        }
    }

    /// Stores what is written, and how far the slowest standby has come. Returns the age of the oldest stored position
    /// that it has not replayed, or zero if there is no standby.
    fn note(&mut self, now: Instant, written: Option<u64>, replayed: Option<u64>) -> Duration {
        let Some(replayed) = replayed else {
            self.written.clear();
            return Duration::ZERO;
        };
        while self.written.front().is_some_and(|(_, position)| *position <= replayed) {
            self.written.pop_front();
        }
        let lag = self.written.front().map_or(Duration::ZERO, |(then, _)| now.duration_since(*then));
        if let Some(position) = written.filter(|position| *position > replayed && self.written.len() < MOST) {
            self.written.push_back((now, position));
        }
        lag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_is_as_late_as_what_it_has_not_replayed() {
        let mut throttle = Throttle::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut lag =
            |seconds, written, replayed| throttle.note(at(seconds), Some(written), replayed).as_secs();
        assert_eq!(lag(0, 100, Some(100)), 0);
        assert_eq!(lag(1, 200, Some(100)), 0);
        assert_eq!(lag(4, 300, Some(150)), 3);
        // The lag counts from the first read, not from the second one.
        assert_eq!(lag(6, 300, Some(200)), 2);
        assert_eq!(lag(7, 300, Some(300)), 0);
        assert_eq!(lag(9, 400, Some(300)), 0);
        assert_eq!(lag(12, 400, None), 0);
        assert_eq!(lag(13, 500, Some(300)), 0);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut throttle = Throttle::default();
        let start = Instant::now();
        let last = u64::try_from(MOST).unwrap_or(0) * 2;
        let lags = (0..last).map(|n| throttle.note(start + Duration::from_secs(n), Some(n + 1), Some(0)));
        assert_eq!(lags.last(), Some(Duration::from_secs(last - 1)));
        assert_eq!(throttle.written.len(), MOST);
    }
}
