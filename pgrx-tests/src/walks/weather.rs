//! What the walk has done to servers and links, and when: a refusal counts as too long only
//! where nothing of the kind explains it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What can come to harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Master,
    /// A shard's server, by its index.
    Server(usize),
    /// The link from the master to a shard.
    Link(usize),
    /// Somebody's worker: it takes a moment to be started again.
    Worker,
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

    /// Whether all of the places have been well for so long.
    pub fn calm_for(&self, places: &[Place], time: Duration) -> bool {
        let since = Instant::now().checked_sub(time);
        since.is_none_or(|since| self.last_trouble(places, since).is_none())
    }
}
