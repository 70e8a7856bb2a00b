//! What a writer knows of one row: every state that it gave it, and who acknowledged it.

use std::time::Instant;

/// What a row holds; None: it does not exist.
pub type State = Option<i64>;

#[derive(Clone, Debug)]
struct Version {
    state: State,
    /// Server and time; None: the answer to its COMMIT was lost.
    acknowledged: Option<(usize, Instant)>,
}

/// Acknowledged writes of a time that may be gone, with the server that forgot them.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub server: usize,
    pub from: Instant,
    pub to: Instant,
    /// Also those which another server acknowledged and has since given away.
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
    /// A row that was there before anything could be lost.
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

    /// Whether the row may be in a state: its newest, or an older one where everything
    /// newer may be lost or was never acknowledged.
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

    /// Its last states, for people.
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
