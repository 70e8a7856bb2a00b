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
struct Storm {
    place: Place,
    until: Option<Instant>,
}

#[derive(Debug, Default)]
pub struct Weather {
    storms: Mutex<Vec<Storm>>,
}

impl Weather {
    fn storms(&self) -> std::sync::MutexGuard<'_, Vec<Storm>> {
        self.storms.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn begins(&self, place: Place) {
        self.storms().push(Storm { place, until: None });
    }

    pub fn ends(&self, place: Place) {
        for storm in self.storms().iter_mut().filter(|storm| storm.place == place) {
            storm.until.get_or_insert_with(Instant::now);
        }
    }

    /// The latest moment since `since` at which one of the places was in trouble; None: at
    /// none.
    pub fn last_trouble(&self, places: &[Place], since: Instant) -> Option<Instant> {
        let storms = self.storms();
        let ended = storms.iter().filter(|storm| places.contains(&storm.place));
        ended.map(|storm| storm.until.unwrap_or_else(Instant::now)).filter(|end| *end >= since).max()
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
        self.storms().iter().any(|storm| storm.until.is_none() && places.contains(&storm.place))
    }
}
