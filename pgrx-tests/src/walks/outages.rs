//! The outages of servers and links that the walk has caused. A refusal takes too long only if no outage explains it.

use super::stage::BOUND;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time in which workers and clients find a server that was away.
const AFTER_TROUBLE: Duration = Duration::from_secs(10);

/// A place that can have an outage. A worker that dies is no excuse, because another one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Master,
    /// A shard's server, by its index.
    Server(usize),
    /// The link from the master to a shard.
    Link(usize),
}

#[derive(Debug)]
struct Outage {
    place: Place,
    until: Option<Instant>,
}

#[derive(Debug, Default)]
pub struct Outages {
    entries: Mutex<Vec<Outage>>,
}

impl Outages {
    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<Outage>> {
        self.entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn begins(&self, place: Place) {
        self.entries().push(Outage { place, until: None });
    }

    pub fn ends(&self, place: Place) {
        for outage in self.entries().iter_mut().filter(|outage| outage.place == place) {
            outage.until.get_or_insert_with(Instant::now);
        }
    }

    /// Returns the latest moment since `since` at which one of the places was in an outage, if there was one.
    pub fn last_trouble(&self, places: &[Place], since: Instant) -> Option<Instant> {
        let entries = self.entries();
        let ended = entries.iter().filter(|outage| places.contains(&outage.place));
        ended.map(|outage| outage.until.unwrap_or_else(Instant::now)).filter(|end| *end >= since).max()
    }

    /// Whether a client that has waited since `began` has waited too long. The effects of an outage may last
    /// a while, and nothing is too long during it.
    pub fn is_too_long(&self, places: &[Place], began: Instant) -> bool {
        let before = began.checked_sub(AFTER_TROUBLE).unwrap_or(began);
        match self.last_trouble(places, before) {
            None => began.elapsed() > BOUND,
            Some(trouble) => trouble.max(began).elapsed() > AFTER_TROUBLE + BOUND,
        }
    }

    /// Whether one of the places is in an outage now.
    pub fn lasts(&self, places: &[Place]) -> bool {
        self.entries().iter().any(|outage| outage.until.is_none() && places.contains(&outage.place))
    }
}
