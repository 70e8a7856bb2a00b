//! Ends a statement in two phases whose session has died or cannot continue: its shards are asked, and told to end it.
//! If a commit was decided, or one of the shards has committed, it commits on all; otherwise on none. A silent shard
//! does not hold up the others. This works in a session's transaction, and between those of a worker.

use super::error::{self, not_settled};
use super::points;
use super::shards::ways_back;
use crate::catalog::caller::Caller;
use crate::catalog::execution::{self, ExecutionPlace, ExecutionState};
use crate::error::Failure;
use crate::query::opening::Manners;
use crate::query::sessions::{QuerySessions, end_of};
use crate::remote::RemoteError;
use crate::remote::fan_out::Question;
use crate::remote::quote::literal;
use crate::remote::result::Rows;
use crate::remote::transaction::{FLUSH, IDENTITY, TransactionFate};
use crate::server::txn::in_one;
use std::time::{Duration, Instant};

/// The state of the transaction on a shard.
#[derive(Clone)]
enum FoundTransaction {
    /// A prepared transaction, on whatever server the shard is now.
    Prepared,
    Committed,
    /// The shard has nothing, and the transaction did not commit.
    Gone,
    /// The shard has nothing, and it may have committed.
    Lost(Failure),
}

struct UnsettledExecution {
    id: i64,
    places: Vec<ExecutionPlace>,
    sessions: QuerySessions,
    /// For each session, the index of its place.
    of: Vec<usize>,
    found: Vec<FoundTransaction>,
    held_up: Vec<Option<Failure>>,
    is_decided: bool,
    /// Whether this master may lack its last records, among them a decision.
    may_lack: bool,
    /// Whether `places` are all shards of the execution.
    are_all: bool,
}

/// Settles an execution, and returns the reason for the first shard that could not be settled. With `again`, the
/// shards that have done it are checked too: one that has failed over to a standby may have it prepared again.
pub fn settle(id: i64, timeout: Duration, again: bool) -> Result<Option<Failure>, Failure> {
    let (found, places) =
        in_one(|| Caller::as_owner(|_| execution::find(id).map(|found| (found, execution::places(id)))))?;
    let (open, others): (Vec<ExecutionPlace>, Vec<ExecutionPlace>) =
        places.into_iter().partition(|place| place.state.is_open());
    let are_all = others.is_empty();
    let done = others
        .into_iter()
        .filter(|place| again && place.state == ExecutionState::Done && place.gid.is_some());
    let places: Vec<ExecutionPlace> = open.into_iter().chain(done).collect();
    if places.is_empty() {
        return Ok(None);
    }
    let mut left = UnsettledExecution::open(id, places, timeout)?;
    left.may_lack = found.may_be_behind;
    left.are_all = are_all;
    left.end_sessions(Instant::now() + timeout)?;
    left.look()?;
    left.decide()?;
    points::reach(points::SETTLING)?;
    left.end()?;
    points::reach(points::SETTLED)?;
    left.record()
}

impl UnsettledExecution {
    fn open(id: i64, places: Vec<ExecutionPlace>, timeout: Duration) -> Result<UnsettledExecution, Failure> {
        let names: Vec<String> = places.iter().map(|place| place.shard.clone()).collect();
        let (mut ways, mut of) = (Vec::new(), Vec::new());
        let mut held_up: Vec<Option<Failure>> = names.iter().map(|_| None).collect();
        for (at, way) in ways_back(id, &names, timeout).into_iter().enumerate() {
            let was = places[at].backend.as_ref().map(|backend| backend.username.clone());
            match (way, was) {
                (Ok((entrance, _)), Some(was)) if entrance.username != was => {
                    held_up[at] = Some(error::other_login(&names[at], &was, &entrance.username));
                }
                (Ok(way), _) => {
                    ways.push(way);
                    of.push(at);
                }
                (Err(why), _) => held_up[at] = Some(why),
            }
        }
        let sessions = QuerySessions::open_each(ways, &in_one(Manners::of_caller), timeout)?;
        let found = names.iter().map(|_| FoundTransaction::Gone).collect();
        Ok(UnsettledExecution {
            id,
            places,
            sessions,
            of,
            found,
            held_up,
            is_decided: false,
            may_lack: false,
            are_all: true,
        })
    }

    /// Asks the shard of each place that has a question and is not held up; the answers are in the order of the
    /// places.
    fn ask(
        &mut self,
        question: impl Fn(&ExecutionPlace, &FoundTransaction) -> Option<String>,
    ) -> Result<Vec<Option<Rows>>, Failure> {
        let UnsettledExecution { places, sessions, of, found, held_up, .. } = self;
        for (number, why) in sessions.failures() {
            held_up[of[number]].get_or_insert(why);
        }
        let answers = sessions.ask(|number| {
            let at = of[number];
            let text = held_up[at].is_none().then(|| question(&places[at], &found[at])).flatten();
            text.map(Question::Own)
        })?;
        for (number, why) in sessions.failures() {
            held_up[of[number]].get_or_insert(why);
        }
        let mut by_place: Vec<Option<Rows>> = places.iter().map(|_| None).collect();
        for (number, answer) in answers.into_iter().enumerate() {
            by_place[of[number]] = answer;
        }
        Ok(by_place)
    }

    /// Ends the remaining sessions, which could otherwise still prepare the transaction after its shard has been
    /// checked.
    fn end_sessions(&mut self, deadline: Instant) -> Result<(), Failure> {
        let mut is_left: Vec<bool> = self.places.iter().map(|place| place.backend.is_some()).collect();
        loop {
            let wanted: Vec<String> = self.names(&is_left);
            let is_wanted = |place: &ExecutionPlace| wanted.contains(&place.shard);
            let answers =
                self.ask(|place, _| place.backend.as_ref().filter(|_| is_wanted(place)).map(end_of))?;
            for (at, answer) in answers.iter().enumerate() {
                is_left[at] = answer.as_ref().is_some_and(|rows| !rows.rows.is_empty());
            }
            let wanted = self.names(&is_left);
            if wanted.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                for (at, _) in is_left.iter().enumerate().filter(|(_, is_left)| **is_left) {
                    self.held_up[at].get_or_insert(error::in_progress(&self.places[at].shard));
                }
                return Ok(());
            }
            self.ask(|place, _| {
                wanted.contains(&place.shard).then(|| "SELECT pg_catalog.pg_sleep(0.02)".to_owned())
            })?;
        }
    }

    fn names(&self, chosen: &[bool]) -> Vec<String> {
        let places = self.places.iter().zip(chosen);
        places.filter(|(_, chosen)| **chosen).map(|(place, _)| place.shard.clone()).collect()
    }

    fn look(&mut self) -> Result<(), Failure> {
        let answers = self.ask(|place, _| Some(question_of(place)))?;
        for (at, answer) in answers.iter().enumerate() {
            if self.held_up[at].is_some() {
                continue;
            }
            match answer.as_ref().map(|rows| found_in(&self.places[at], rows)) {
                Some(Ok(found)) => self.found[at] = found,
                Some(Err(why)) => self.held_up[at] = Some(why),
                None => {
                    let why = RemoteError::unreadable(&self.places[at].shard, "what is prepared");
                    self.held_up[at] = Some(why.into());
                }
            }
        }
        Ok(())
    }

    /// A shard that has committed was told to, even if this master has no record of it because it was restored or
    /// failed over.
    fn decide(&mut self) -> Result<(), Failure> {
        let is_told = self.found.iter().any(|found| matches!(found, FoundTransaction::Committed));
        self.is_decided = is_told
            || self
                .places
                .iter()
                .any(|place| matches!(place.state, ExecutionState::Committing | ExecutionState::Done));
        if !self.is_decided {
            self.leave_what_may_be_decided();
            return Ok(());
        }
        for place in self.places.iter_mut().filter(|place| place.state == ExecutionState::Prepared) {
            in_one(|| Caller::as_owner(|_| execution::decides(self.id, &place.shard)))?;
            place.state = ExecutionState::Committing;
        }
        Ok(())
    }

    /// A master that may lack its last records rolls a prepared transaction back only after all shards have said
    /// whether they have committed. A shard that is recorded to have prepared it can say so; of another shard that has
    /// nothing, nobody knows.
    fn leave_what_may_be_decided(&mut self) {
        let says = |at: usize| {
            self.held_up[at].is_none()
                && match self.found[at] {
                    FoundTransaction::Prepared | FoundTransaction::Committed => true,
                    FoundTransaction::Gone => self.places[at].transaction.is_some(),
                    FoundTransaction::Lost(_) => false,
                }
        };
        if !self.may_lack || self.are_all && (0..self.places.len()).all(says) {
            return;
        }
        for (at, place) in self.places.iter().enumerate() {
            if let (FoundTransaction::Prepared, Some(gid)) = (&self.found[at], &place.gid) {
                self.held_up[at].get_or_insert(error::master_may_lack_decision(&place.shard, gid));
            }
        }
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.ask(|place, found| match (found, place.state, &place.gid) {
            (FoundTransaction::Prepared, ExecutionState::Committing | ExecutionState::Done, Some(gid)) => {
                Some(format!("COMMIT PREPARED {}", literal(gid)))
            }
            (FoundTransaction::Prepared, _, Some(gid)) => Some(format!("ROLLBACK PREPARED {}", literal(gid))),
            (
                FoundTransaction::Prepared
                | FoundTransaction::Committed
                | FoundTransaction::Gone
                | FoundTransaction::Lost(_),
                ..,
            ) => None,
        })?;
        self.look()?;
        // The session that committed, or this one, may not have waited for its standbys.
        self.ask(|_, found| matches!(found, FoundTransaction::Committed).then(|| FLUSH.to_owned())).map(drop)
    }

    fn record(self) -> Result<Option<Failure>, Failure> {
        let UnsettledExecution { id, places, found, held_up, may_lack, .. } = self;
        let mut first = None;
        in_one(|| {
            Caller::as_owner(|_| {
                for ((place, found), held_up) in places.iter().zip(found).zip(held_up) {
                    let shard = &place.shard;
                    let is_decided = matches!(place.state, ExecutionState::Committing | ExecutionState::Done);
                    // The shard has done it, and is checked again another time.
                    if place.state == ExecutionState::Done && !matches!(found, FoundTransaction::Prepared) {
                        continue;
                    }
                    let unknown =
                        |why: Failure| execution::ends_badly(id, shard, ExecutionState::Unknown, &why);
                    match (held_up, found) {
                        // Nobody knows whether it was decided, and the hint says how to find out.
                        (Some(why), FoundTransaction::Prepared) if may_lack && !is_decided => {
                            execution::is_held_up(id, shard, &why);
                            first.get_or_insert(why);
                        }
                        (Some(why), _) => {
                            execution::is_held_up(id, shard, &why);
                            first.get_or_insert(not_settled(why, is_decided));
                        }
                        (None, FoundTransaction::Prepared) => {
                            let why = error::in_progress(shard);
                            execution::is_held_up(id, shard, &why);
                            first.get_or_insert(not_settled(why, is_decided));
                        }
                        (None, FoundTransaction::Committed) => execution::is_done(id, shard, None)?,
                        (None, FoundTransaction::Gone) if is_decided => {
                            unknown(error::rolled_back_elsewhere(shard))?;
                        }
                        (None, FoundTransaction::Lost(why)) if is_decided => unknown(why)?,
                        (None, FoundTransaction::Gone | FoundTransaction::Lost(_)) if may_lack => {
                            unknown(error::master_may_lack_outcome(shard))?;
                        }
                        (None, FoundTransaction::Gone | FoundTransaction::Lost(_)) => {
                            execution::waits(id, shard)?
                        }
                    }
                }
                Ok(first)
            })
        })
    }
}

fn question_of(place: &ExecutionPlace) -> String {
    let of_transaction = match &place.transaction {
        Some(transaction) => transaction.columns(),
        None => IDENTITY.to_owned(),
    };
    format!(
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_prepared_xacts WHERE gid OPERATOR(pg_catalog.=) {}), {of_transaction}",
        literal(place.gid.as_deref().unwrap_or_default())
    )
}

fn found_in(place: &ExecutionPlace, rows: &Rows) -> Result<FoundTransaction, Failure> {
    let unreadable = || RemoteError::unreadable(&place.shard, "what is prepared").into();
    let cells = rows.cells();
    let [Some(is_prepared), of_transaction @ ..] = cells.as_slice() else { return Err(unreadable()) };
    let Some(Some(system)) = of_transaction.first() else { return Err(unreadable()) };
    if *is_prepared == "t" {
        return Ok(FoundTransaction::Prepared);
    }
    // What is prepared on another server is valid there, however the name came to lead there.
    let is_elsewhere = place.system_identifier.as_deref().is_some_and(|known| known != *system);
    if is_elsewhere {
        return Err(error::other_server(&place.shard));
    }
    // Nothing was decided on a transaction that is not recorded as prepared.
    let Some(transaction) = &place.transaction else { return Ok(FoundTransaction::Gone) };
    let shard = &place.shard;
    Ok(match transaction.fate(of_transaction).ok_or_else(unreadable)? {
        TransactionFate::OtherServer => FoundTransaction::Lost(error::other_server(shard)),
        TransactionFate::Committed => FoundTransaction::Committed,
        TransactionFate::Aborted => FoundTransaction::Gone,
        TransactionFate::InProgress => return Err(error::in_progress(shard)),
        TransactionFate::NotGiven | TransactionFate::Forgotten => {
            FoundTransaction::Lost(error::forgotten(shard))
        }
    })
}
