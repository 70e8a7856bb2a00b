//! What the walk has done to servers and links, and when: a refusal counts as too long only
//! where nothing of the kind explains it.

use super::stage::BOUND;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Until workers and clients have found a server that was away.
const AFTER_TROUBLE: Duration = Duration::from_secs(10);

/// What can come to harm. A worker that dies is no excuse: another one comes.
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

    /// The latest moment since `since` at which one of the places was in trouble; None: at
    /// none.
    pub fn last_trouble(&self, places: &[Place], since: Instant) -> Option<Instant> {
        let entries = self.entries();
        let ended = entries.iter().filter(|outage| places.contains(&outage.place));
        ended.map(|outage| outage.until.unwrap_or_else(Instant::now)).filter(|end| *end >= since).max()
    }

    /// Whether somebody who has waited since `began` has waited too long: what trouble leaves
    /// behind is given a while, and nothing is too long while it lasts.
    pub fn is_too_long(&self, places: &[Place], began: Instant) -> bool {
        let before = began.checked_sub(AFTER_TROUBLE).unwrap_or(began);
        match self.last_trouble(places, before) {
            None => began.elapsed() > BOUND,
            Some(trouble) => trouble.max(began).elapsed() > AFTER_TROUBLE + BOUND,
        }
    }

    /// Whether one of the places is in trouble now.
    pub fn lasts(&self, places: &[Place]) -> bool {
        self.entries().iter().any(|outage| outage.until.is_none() && places.contains(&outage.place))
    }
}
