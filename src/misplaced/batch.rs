//! Some rows, in one transaction on each shard. The right shard has them, committed and written, before they are gone
//! from the wrong one: until then no other session changes them there, since their deletion returns them.

use super::error::{self, OddRows};
use super::facts::{ForeignKey, MisplacedFacts};
use super::points::{COPIED, DELETED, STAGED};
use super::session::{MoveSession, Sees};
use super::statements::{self, Chosen};
use crate::catalog::misplaced_run::Action;
use crate::error::Failure;
use crate::misplaced::fk_group::Unit;
use crate::misplaced::key_batch::Lot;
use crate::misplaced::table_pair::MovedTable;
use crate::remote::RemoteError;
use crate::remote::copy::Bounds;
use crate::remote::pipe;
use crate::remote::result::Rows;
use crate::server::injection::{Point, reach_in_session};
use std::time::Duration;

/// The number of rows up to which they are compared one by one; for more, the right shard's planner decides.
const FEW: u64 = 10_000;

/// The SQLSTATEs if rows were changed that are not seen as they are now, if another session had to be admitted, or if
/// a row was added that refers to one that is about to be deleted.
const BETWEEN: [&str; 3] = ["40001", "40P01", "23503"];

/// What has happened to the rows of one table.
#[derive(Clone, Copy, Default, Debug)]
pub struct Done {
    pub moved: u64,
    /// The number of rows that were at the right shard already, or were not to be moved there.
    pub deleted: u64,
}

/// The rows of a batch.
#[derive(Clone, Copy)]
pub enum WhichRows<'a> {
    /// Those of a list that still exist.
    Listed(&'a Chosen),
    /// All rows of the keys, unless another session comes between.
    All,
    /// All rows of the keys, while no other session writes to these tables. None is left then.
    AllAlone,
}

pub struct MoveBatch<'a> {
    pub lot: &'a Lot,
    pub unit: &'a Unit,
    pub keys: &'a [String],
    pub of: WhichRows<'a>,
    pub timeout: Duration,
}

/// Why nothing was done.
pub enum Halt {
    /// Another session has changed rows of the wrong shard meanwhile, or rows that refer to them.
    Between(Failure),
    Other(Failure),
}

impl From<Failure> for Halt {
    fn from(why: Failure) -> Halt {
        Halt::Other(why)
    }
}

impl MoveBatch<'_> {
    /// Does everything but the commits; returns the results by the positions of the unit's tables.
    pub fn prepare(
        &self,
        here: &mut MoveSession,
        there: Option<&mut MoveSession>,
    ) -> Result<Vec<(usize, Done)>, Halt> {
        here.patient_for(self.timeout);
        // No row that refers to another one may be added after the search for such rows.
        let sees = if self.unit.is_whole { Sees::OneMoment } else { Sees::Latest };
        let alone = match self.of {
            WhichRows::Listed(_) | WhichRows::All => Vec::new(),
            WhichRows::AllAlone => self.pairs().map(|(_, pair)| pair.here.clone()).collect(),
        };
        begin(here, &self.lot.here, sees, &alone, self.timeout)?;
        if let WhichRows::Listed(_) = self.of {
            here.connection.run(statements::BY_PLACES).map_err(Failure::from)?;
        }
        let done = match (there, &self.lot.there) {
            (Some(there), Some(facts)) => {
                there.patient_for(self.timeout);
                begin(there, facts, Sees::Latest, &[], self.timeout)?;
                self.take_over(here, there)?
            }
            _ => self.delete(here)?,
        };
        if let WhichRows::AllAlone = self.of
            && let Some(table) = self.is_left(here)?
        {
            return Err(error::rows_stay(&here.shard.shard_key, &table).into());
        }
        Ok(done)
    }

    /// Undoes all of it.
    pub fn undo(&self, here: &mut MoveSession, there: Option<&mut MoveSession>) -> Result<(), Failure> {
        here.roll_back()?;
        there.map_or(Ok(()), MoveSession::roll_back)
    }

    fn pairs(&self) -> impl DoubleEndedIterator<Item = (usize, &MovedTable)> {
        self.unit.tables.iter().map(|position| (*position, &self.lot.pairs[*position]))
    }

    fn chosen(&self) -> Option<&Chosen> {
        match self.of {
            WhichRows::Listed(chosen) => Some(chosen),
            WhichRows::All | WhichRows::AllAlone => None,
        }
    }

    /// Explains an error of the wrong shard about its own rows.
    fn halt(&self, error: RemoteError, here: &str) -> Halt {
        let is_between =
            self.unit.is_whole && error.shard == here && BETWEEN.iter().any(|code| error.is(code));
        if is_between { Halt::Between(error.into()) } else { Halt::Other(error.into()) }
    }

    fn take_over(&self, here: &mut MoveSession, there: &mut MoveSession) -> Result<Vec<(usize, Done)>, Halt> {
        let shard = here.shard.shard_key.clone();
        let mut rows = 0;
        for (position, pair) in self.pairs().rev() {
            self.require_no_follower(here, position)?;
            let out = statements::take(pair, self.keys, self.chosen());
            make_stage(there, pair)?;
            let into = statements::fill_stage(pair);
            let unlimited = Bounds::unlimited();
            let copied =
                pipe::statements(&mut here.connection, &out, &mut there.connection, &into, unlimited)
                    .map_err(|error| self.halt(error.of_table(&pair.name), &shard))?;
            rows += copied.rows;
        }
        if rows < FEW {
            there.connection.run(statements::BY_KEYS).map_err(Failure::from)?;
        }
        let mut done = Vec::new();
        for (position, pair) in self.pairs() {
            let what = match self.lot.action {
                Action::Move => arrive(pair, self.keys, there, &shard)?,
                Action::Delete(_) => {
                    Done { moved: 0, deleted: require_there(pair, self.keys, there, &shard)? }
                }
            };
            done.push((position, what));
        }
        // What would prevent its commit is reported before the other side is committed. What has arrived later may
        // also have changed rows that had arrived before.
        for session in [&mut *here, &mut *there] {
            let checked = session.connection.run("SET CONSTRAINTS ALL IMMEDIATE");
            checked.map_err(|error| self.halt(error, &shard))?;
        }
        if self.lot.action == Action::Move {
            self.pairs().try_for_each(|(_, pair)| require_arrived(pair, self.keys, there))?;
        }
        Ok(done)
    }

    fn delete(&self, here: &mut MoveSession) -> Result<Vec<(usize, Done)>, Halt> {
        let shard = here.shard.shard_key.clone();
        let mut done = Vec::new();
        for (position, pair) in self.pairs().rev() {
            self.require_no_follower(here, position)?;
            let answer = here.connection.run(&statements::delete(pair, self.keys, self.chosen()));
            let answer = answer.map_err(|error| self.halt(error, &shard))?;
            done.push((position, Done { moved: 0, deleted: answer.affected }));
        }
        let checked = here.connection.run("SET CONSTRAINTS ALL IMMEDIATE");
        checked.map_err(|error| self.halt(error, &shard))?;
        Ok(done)
    }

    /// Requires that the server itself deletes or changes no row because those it refers to are deleted: it would not
    /// be moved.
    fn require_no_follower(&self, here: &mut MoveSession, position: usize) -> Result<(), Failure> {
        let pair = &self.lot.pairs[position];
        for key in self.lot.followers(position) {
            let is_own = key.from_position == key.to_position;
            let others = if is_own {
                format!(" AND ({}) IS NOT TRUE", pair.is_of(self.keys, "c"))
            } else {
                String::new()
            };
            let question = format!(
                "SELECT EXISTS (SELECT FROM {} AS c JOIN {} AS p ON {} WHERE {}{others})",
                key.from,
                key.to,
                key.refers(),
                pair.is_of(self.keys, "p")
            );
            require_no_reference(here, key, &question)?;
        }
        Ok(())
    }

    /// Returns a table with rows that are left.
    pub fn is_left(&self, here: &mut MoveSession) -> Result<Option<String>, Failure> {
        for (_, pair) in self.pairs() {
            if here.connection.run(&statements::exists(pair, self.keys))?.scalar() != Some("f") {
                return Ok(Some(pair.name.clone()));
            }
        }
        Ok(None)
    }
}

/// Commits both sides, the right shard first.
pub fn commit(
    here: &mut MoveSession,
    there: Option<&mut MoveSession>,
    timeout: Duration,
) -> Result<(), Failure> {
    here.patient_for(timeout);
    if let Some(there) = there {
        there.patient_for(timeout);
        reach(STAGED)?;
        there.commit()?;
        reach(COPIED)?;
    }
    here.commit()?;
    reach(DELETED)
}

/// Begins a transaction in which the tables stay as they were when they were checked.
pub fn begin(
    session: &mut MoveSession,
    facts: &MisplacedFacts,
    sees: Sees,
    alone: &[String],
    timeout: Duration,
) -> Result<(), Failure> {
    if session.begin(&facts.names, sees, alone, timeout)? != facts.seen {
        return Err(error::table_changed(&session.shard.shard_key));
    }
    let as_application = session.as_application();
    session.connection.run(&as_application)?;
    Ok(())
}

pub fn make_stage(there: &mut MoveSession, pair: &MovedTable) -> Result<(), Failure> {
    Ok(there.connection.run(&statements::make_stage(pair)).map(drop)?)
}

/// Moves rows of the stage into the table.
fn arrive(pair: &MovedTable, keys: &[String], there: &mut MoveSession, here: &str) -> Result<Done, Failure> {
    let deleted = require_no_conflict(pair, keys, there, here)?;
    let moved = there.connection.run(&statements::insert(pair))?.affected;
    Ok(Done { moved, deleted })
}

/// Requires that all rows are as they were sent, once all have arrived.
fn require_arrived(pair: &MovedTable, keys: &[String], there: &mut MoveSession) -> Result<(), Failure> {
    let missing = there.connection.run(&statements::missing(pair, keys))?;
    match odd_rows(&pair.there, &missing, there)? {
        None => Ok(()),
        Some(odd) => Err(error::altered(&there.shard.shard_key, &odd)),
    }
}

/// Returns how many rows of the stage exist there already, unchanged; the stage is without them then.
pub fn require_no_conflict(
    pair: &MovedTable,
    keys: &[String],
    there: &mut MoveSession,
    here: &str,
) -> Result<u64, Failure> {
    require_asked_for(pair, keys, there, here)?;
    let equal = there.connection.run(&statements::drop_equal(pair, keys))?.affected;
    let conflicts = there.connection.run(&statements::conflicts(pair))?;
    match odd_rows(&pair.there, &conflicts, there)? {
        None => Ok(equal),
        Some(odd) => Err(error::conflict(here, &there.shard.shard_key, &odd)),
    }
}

/// Requires that all rows of the stage exist there as well, with any content; returns their number.
pub fn require_there(
    pair: &MovedTable,
    keys: &[String],
    there: &mut MoveSession,
    here: &str,
) -> Result<u64, Failure> {
    require_asked_for(pair, keys, there, here)?;
    let absent = there.connection.run(&statements::absent(pair, keys))?;
    require_none_absent(pair, &absent, there, here)?;
    let counted = there.connection.run(&statements::count_stage(pair))?;
    let count = counted.scalar().and_then(|count| count.parse().ok());
    count.ok_or_else(|| RemoteError::unreadable(there.connection.shard(), "its rows").into())
}

pub fn require_none_absent(
    pair: &MovedTable,
    absent: &Rows,
    there: &MoveSession,
    here: &str,
) -> Result<(), Failure> {
    match odd_rows(&pair.here, absent, there)? {
        None => Ok(()),
        Some(odd) => Err(error::only_here(here, &there.shard.shard_key, &odd)),
    }
}

/// Requires that the rows belong to the keys: the right shard itself checks this, since the wrong one is not trusted.
pub fn require_asked_for(
    pair: &MovedTable,
    keys: &[String],
    there: &mut MoveSession,
    here: &str,
) -> Result<(), Failure> {
    let Some(query) = statements::strange(pair, keys) else { return Ok(()) };
    let strange = there.connection.run(&query)?;
    match odd_rows(&pair.here, &strange, there)? {
        None => Ok(()),
        Some(odd) => Err(error::rows_of_other_keys(here, &odd)),
    }
}

fn odd_rows<'a>(
    table: &'a str,
    answer: &Rows,
    session: &MoveSession,
) -> Result<Option<OddRows<'a>>, Failure> {
    match answer.rows.first().map(Vec::as_slice) {
        None => Ok(None),
        Some([Some(key), Some(count)]) => {
            let rows =
                count.parse().map_err(|error| RemoteError::unreadable(session.connection.shard(), error))?;
            Ok(Some(OddRows { table, rows, key: key.clone() }))
        }
        Some(_) => Err(RemoteError::unreadable(session.connection.shard(), "its rows").into()),
    }
}

/// Requires that no row refers to what is deleted by a foreign key that would delete that row along with it.
pub fn require_no_reference(
    here: &mut MoveSession,
    key: &ForeignKey,
    is_there_one: &str,
) -> Result<(), Failure> {
    if here.connection.run(is_there_one)?.scalar() == Some("f") {
        return Ok(());
    }
    Err(error::foreign_key_cascades(&here.shard.shard_key, &key.name, &key.from, &key.to))
}

pub fn reach(point: &'static Point) -> Result<(), Failure> {
    Ok(reach_in_session(point)?)
}
