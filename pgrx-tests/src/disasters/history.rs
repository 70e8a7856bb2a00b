//! What a writer knows of one row: every state that it wrote, and which server acknowledged it.

use std::time::Instant;

/// The value of a row, or `None` if the row does not exist.
pub type State = Option<i64>;

#[derive(Clone, Debug)]
struct Version {
    state: State,
    /// Server and time of the acknowledgement, or `None` if the answer to the COMMIT was lost.
    acknowledged: Option<(usize, Instant)>,
}

/// A time whose acknowledged writes may be lost, and the server that lost them.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub server: usize,
    pub from: Instant,
    pub to: Instant,
    /// Whether this includes writes that another server acknowledged before it gave the row away.
    pub of_all: bool,
}

impl Loss {
    fn covers(&self, (server, at): (usize, Instant)) -> bool {
        (self.of_all || server == self.server) && self.from <= at && at <= self.to
    }
}

#[derive(Clone, Debug)]
pub struct History {
    versions: Vec<Version>,
}

impl History {
    /// Returns the history of a row that existed before anything could be lost.
    pub fn beginning(state: State, server: usize) -> History {
        History { versions: vec![Version { state, acknowledged: Some((server, Instant::now())) }] }
    }

    pub fn acknowledged(&mut self, state: State, server: usize) {
        self.versions.push(Version { state, acknowledged: Some((server, Instant::now())) });
    }

    pub fn unknown(&mut self, state: State) {
        self.versions.push(Version { state, acknowledged: None });
    }

    pub fn last(&self) -> State {
        self.versions.last().and_then(|version| version.state)
    }

    /// Whether the row may be in a state. That is its newest state, or an older one if everything newer may
    /// be lost or was never acknowledged.
    pub fn may_be(&self, found: State, losses: &[Loss]) -> bool {
        for version in self.versions.iter().rev() {
            if version.state == found {
                return true;
            }
            let is_safe = version.acknowledged.is_some_and(|by| !losses.iter().any(|loss| loss.covers(by)));
            if is_safe {
                return false;
            }
        }
        false
    }

    /// Describes its last states for people.
    pub fn tell(&self) -> String {
        let tail = self.versions.iter().rev().take(4).rev();
        let one = |version: &Version| match version.acknowledged {
            Some((server, at)) => {
                format!("{:?} by server {server} {:.1} s ago", version.state, at.elapsed().as_secs_f64())
            }
            None => format!("{:?} without an answer", version.state),
        };
        tail.map(one).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_acknowledged_is_what_must_be_there() {
        let mut history = History::beginning(Some(1), 0);
        history.acknowledged(Some(2), 0);
        assert!(history.may_be(Some(2), &[]));
        assert!(!history.may_be(Some(1), &[]));
        history.unknown(None);
        assert!(history.may_be(None, &[]) && history.may_be(Some(2), &[]));
        assert!(!history.may_be(Some(1), &[]));
    }

    #[test]
    fn a_server_may_lose_its_own_writes_of_a_time_and_no_others() {
        let from = Instant::now();
        let mut history = History::beginning(Some(1), 0);
        history.acknowledged(Some(2), 1);
        let loss = Loss { server: 1, from, to: Instant::now() + Duration::from_secs(1), of_all: false };
        assert!(history.may_be(Some(1), &[loss]));
        assert!(!History::beginning(Some(1), 0).may_be(None, &[Loss { server: 1, ..loss }]));
        assert!(!history.may_be(Some(1), &[Loss { server: 0, ..loss }]));
        assert!(history.may_be(Some(1), &[Loss { server: 0, of_all: true, ..loss }]));
        let earlier = Loss { to: from, ..loss };
        assert!(!history.may_be(Some(1), &[earlier]));
    }
}
