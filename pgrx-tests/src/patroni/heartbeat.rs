//! A client of each pair that commits rows of its own all the time. It measures how long the pair took no
//! writes, and whether Patroni itself has lost acknowledged commits. Splits do not move its rows.

use super::kills::clock;
use super::site::{NAMES, Site};
use crate::cluster::DATABASE;
use crate::{Error, Result};
use postgres::{Client, NoTls};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PACE: Duration = Duration::from_millis(50);
/// A shorter time without an acknowledgement is not an outage.
pub const NOTABLE: Duration = Duration::from_millis(700);

/// The time from one instant to another.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub from: Instant,
    pub to: Instant,
}

impl Span {
    pub fn length(&self) -> Duration {
        self.to.saturating_duration_since(self.from)
    }

    /// Returns how much of it is covered by others, some of which may overlap.
    pub fn covered_by(&self, others: &[Span]) -> Duration {
        let mut inside: Vec<Span> = others
            .iter()
            .map(|other| Span { from: other.from.max(self.from), to: other.to.min(self.to) })
            .filter(|part| part.from < part.to)
            .collect();
        inside.sort_by_key(|part| part.from);
        let mut covered = Duration::ZERO;
        let mut until = self.from;
        for part in inside {
            covered += part.to.saturating_duration_since(part.from.max(until));
            until = until.max(part.to);
        }
        covered
    }
}

/// What the client of one pair has seen.
#[derive(Default)]
struct Seen {
    /// The time of day of each acknowledgement.
    acknowledged: BTreeMap<i64, String>,
    outages: Vec<Span>,
}

/// The results of all clients.
pub struct HeartbeatReport {
    pub acknowledged: usize,
    /// The number of acknowledged rows that are missing.
    pub lost: usize,
    /// Where they are missing, in words.
    pub losses: Vec<String>,
    /// The times in which nobody could write, for each pair.
    pub outages: Vec<Vec<Span>>,
}

pub struct Heartbeat {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Seen>>,
}

impl Heartbeat {
    pub fn start(site: &Site) -> Result<Heartbeat> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for pair in &site.pairs {
            let config = pair.server()?.config(DATABASE, "postgres");
            config
                .connect(NoTls)?
                .batch_execute("CREATE TABLE IF NOT EXISTS pulse (n bigint PRIMARY KEY)")?;
            let stop = stop.clone();
            threads.push(std::thread::spawn(move || beat(&config, &stop)));
        }
        Ok(Heartbeat { stop, threads })
    }

    /// Ends the clients, and looks for the acknowledged rows.
    pub fn stop(mut self, site: &Site) -> Result<HeartbeatReport> {
        self.stop.store(true, Ordering::Relaxed);
        let mut beats = HeartbeatReport { acknowledged: 0, lost: 0, losses: Vec::new(), outages: Vec::new() };
        for (thread, pair) in self.threads.drain(..).zip(&site.pairs) {
            let seen = thread.join().map_err(|_| Error::from("a pulse panicked"))?;
            let rows = pair.server()?.superuser(DATABASE)?.query("SELECT n FROM pulse", &[])?;
            let found: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
            beats.acknowledged += seen.acknowledged.len();
            let lost: Vec<i64> = seen.acknowledged.keys().copied().filter(|n| !found.contains(n)).collect();
            beats.lost += lost.len();
            if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
                let (from, to) = (&seen.acknowledged[first], &seen.acknowledged[last]);
                beats.losses.push(format!("{}: {} commits from {from} to {to}", pair.name, lost.len()));
            }
            beats.outages.push(seen.outages);
        }
        debug_assert_eq!(beats.outages.len(), NAMES.len());
        Ok(beats)
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn beat(config: &postgres::Config, stop: &AtomicBool) -> Seen {
    let (mut seen, mut session, mut last) = (Seen::default(), None::<Client>, Instant::now());
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        n += 1;
        let written = match &mut session {
            Some(client) => client.execute("INSERT INTO pulse VALUES ($1)", &[&n]),
            empty => match config.connect(NoTls) {
                Ok(client) => empty.insert(client).execute("INSERT INTO pulse VALUES ($1)", &[&n]),
                Err(error) => Err(error),
            },
        };
        if written.is_ok() {
            seen.acknowledged.insert(n, clock());
            let now = Instant::now();
            if now - last > NOTABLE {
                seen.outages.push(Span { from: last, to: now });
            }
            last = now;
        } else {
            session = None;
        }
        std::thread::sleep(PACE);
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_counts_once() {
        let start = Instant::now();
        let span = |from: u64, to: u64| Span {
            from: start + Duration::from_secs(from),
            to: start + Duration::from_secs(to),
        };
        let others = [span(0, 3), span(2, 5), span(8, 9), span(30, 40)];
        assert_eq!(span(1, 20).covered_by(&others), Duration::from_secs(5));
        assert_eq!(span(10, 20).covered_by(&others), Duration::ZERO);
    }
}
