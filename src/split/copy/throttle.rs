//! A copy that waits for the target's standbys: what it writes they have to replay, and who reads
//! from them would see older and older rows. Changes go on coming over meanwhile.
//!
//! How far a standby is behind is measured by what the target had written at the last looks: what
//! pg_stat_replication says of time stands still with a replay that does.

use crate::agent::error::Result;
use crate::catalog::split;
use crate::guc;
use crate::remote::Connection;
use crate::server::txn::transaction;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Positions in the log as numbers; of the slowest that follows it also the name. Whoever may not
/// see how far they are sees no state either.
const STANDBYS: &str = "
    SELECT pg_current_wal_lsn() - '0/0', min(replay_lsn - '0/0'),
           (array_agg(application_name ORDER BY replay_lsn))[1], count(*) > count(state)
      FROM pg_stat_replication WHERE state IS NULL OR state IN ('streaming', 'catchup')";

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// Looks that are remembered: the oldest tell how far back a standby is.
const MOST: usize = 600;

/// What a worker remembers of the target's standbys.
#[derive(Default)]
pub struct Throttle {
    looked: Option<Instant>,
    /// When the target had written so much; the slowest standby has replayed none of them.
    written: VecDeque<(Instant, u64)>,
    why: Option<String>,
    has_told: bool,
    /// Clients wait for what is copied.
    is_off: bool,
}

impl Throttle {
    /// Behind the decision nobody is served before the last row has come: standbys count no more.
    pub fn switch_off(&mut self) {
        *self = Throttle { is_off: true, ..Throttle::default() };
    }

    /// What the copy has to wait for.
    pub fn reason(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Looks at the standbys, once a second at most.
    pub fn look(&mut self, target: &mut Connection, split: i64) -> Result<()> {
        if self.is_off {
            return Ok(());
        }
        let Some(most) = guc::max_standby_lag() else {
            *self = Throttle::default();
            return Ok(());
        };
        if self.looked.is_some_and(|looked| looked.elapsed() < BETWEEN_LOOKS.min(most)) {
            return Ok(());
        }
        let rows = target.run(STANDBYS)?;
        let cells = rows.rows.into_iter().next().unwrap_or_default();
        let cell = |n: usize| cells.get(n).and_then(Option::as_deref);
        let position = |n: usize| cell(n).and_then(|text| text.parse::<u64>().ok());
        if cell(3) == Some("t") && !self.has_told {
            self.has_told = true;
            let text = format!(
                "shardmaster.max_standby_lag counts for nothing: the mover may not see how far the standbys of shard \"{}\" are; GRANT pg_monitor lets it",
                target.shard()
            );
            transaction(|| split::event(split, None, None, &text));
        }
        let now = Instant::now();
        self.looked = Some(now);
        let lag = self.note(now, position(0), position(1));
        self.why = (lag > most).then(|| {
            format!(
                "standby \"{}\" of shard \"{}\", {} s behind (shardmaster.max_standby_lag)",
                cell(2).unwrap_or_default(),
                target.shard(),
                lag.as_secs()
            )
        });
        Ok(())
    }

    /// Takes down what is written, and how far the slowest has come: how old the oldest is that it
    /// has not replayed. Nobody follows: none.
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
        // Up to the first look, not to the second one.
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
