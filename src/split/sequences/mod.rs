//! Sequences that clients of moving rows draw from: the target's are raised past the source's, so that no number is
//! given out twice.
//!
//! Invariant: a number that the source has given out, up to the moment right before the target opens, is given out by
//! no sequence of the target that fills the same column. They are raised three times: before the fence, where nobody
//! waits; within it, where the source's last rows are known; and behind the decision, by what the source has given out
//! since, as drawing from a sequence needs no lock that a fence could take.

mod beyond;
mod body;
mod by_key;
mod by_table;
mod called;
mod callers;
pub mod check;
mod counter;
pub mod doings;
mod doubts;
pub mod draw;
pub mod functions;
mod make;
pub mod named;
pub mod named_rows;
mod names;
mod pair;
mod positions;
mod reach;
mod statements;
pub mod survey;
mod tokens;
mod unfollowed;
mod writers;

use crate::agent::catalogs;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::agent::table_names::TableNames;
use crate::catalog::sequence;
use crate::catalog::split::{self, Plan};
use crate::error::SqlState;
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError};
use crate::server::txn::transaction;
use crate::split::engine::Engine;
use crate::split::engine::sessions::EngineSessions;
use crate::split::table::SplitTable;
use crate::words::some_of;
use counter::CounterState;
use draw::Draw;
pub use pair::{Places, plainly_filled};
use pair::{SequencePair, SequenceProblem};
pub use positions::{Ahead, IS_OTHER};
use positions::{Raised, SequencePosition};
use std::time::{Duration, Instant};
use survey::{Survey, TableNumbers};

/// The name of the prepared statement that reads the positions of the known sequences.
const POSITIONS: &str = "positions";

/// How long the target stays closed after the decision, for a session that has drawn from a sequence there, or for a
/// source that does not report what it has given out since.
const TO_FOLLOW: Duration = Duration::from_millis(500);

/// Identifies the sequences of a server, in any schema: an application may make one for a tenant at any time.
const ALL: &str = "SELECT count(*), sum(seqrelid::int8), max(seqrelid::int8) FROM pg_sequence";

/// The sequences that were raised before the fence. Behind it both servers are asked again which they are, and in the
/// same message for their positions.
pub struct RaisedSequences {
    /// All that the source has.
    all: Rows,
    of_columns: [Vec<Draw>; 2],
    pairs: Vec<SequencePair>,
    lists: [String; 2],
    /// The queries for their positions on the source and the target; empty if there are none.
    asks: [String; 2],
    /// The positions that those of the target have at least.
    reached: Vec<Option<CounterState>>,
}

/// Returns a plan with the sequences that are registered by now.
pub fn with_registered_now(plan: &Plan) -> Plan {
    Plan { sequences: transaction(|| sequence::of(&plan.keyspace)), ..plan.clone() }
}

/// Raises every sequence of the target to the source's position plus a margin, and creates those of moving keys that
/// it lacks. Until the deadline it waits for sessions that have drawn from one.
pub fn raise(
    plan: &Plan,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    ahead: Ahead,
    deadline: Instant,
) -> Result<RaisedSequences> {
    let plan = with_registered_now(plan);
    let tables = TableNumbers::of(tables);
    let EngineSessions { control, target, .. } = sessions;
    let all = control.run(ALL)?;
    let found = complete(&plan, control, target, &tables)?;
    let mut known = RaisedSequences {
        all,
        lists: tables.lists(),
        of_columns: found.of_columns,
        pairs: found.pairs,
        asks: [String::new(), String::new()],
        reached: Vec::new(),
    };
    known.prepare(control, target)?;
    let positions = positions::ask(control, target, &known.pairs, &known.asks)?;
    let raised = positions::raise_all(target, &known.pairs, &positions, ahead, deadline)?;
    if raised.any {
        // A raised sequence makes the query be planned anew, which must not happen behind the fence.
        target.run(&known.asks[1])?;
    }
    known.reached = raised.reached;
    Ok(known)
}

/// Returns the sequences of both sides, once the target has what it lacks of moving keys.
fn complete(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    tables: &TableNumbers<'_>,
) -> Result<Survey> {
    let found = survey::survey(plan, source, target, tables)?;
    if let Some(problem) = found.problems.into_iter().next() {
        return Err(failed(target, problem));
    }
    if found.to_make.is_empty() {
        return Ok(Survey { problems: Vec::new(), ..found });
    }
    make::make(source, target, &found.to_make)?;
    let names: Vec<String> = found.to_make.iter().map(pair::WantedSequence::name).collect();
    let text = format!("created on the target, as the source has them: {}", some_of(&names));
    transaction(|| split::event(plan.id, None, None, &text));
    let found = survey::survey(plan, source, target, tables)?;
    match found.to_make.first() {
        None => Ok(found),
        Some(_) => Err(SplitError::Retry("sequences of the target, which keep changing".to_owned())),
    }
}

fn failed(target: &Connection, SequenceProblem { text, hint, .. }: SequenceProblem) -> SplitError {
    SplitError::failed(SqlState::NOT_IN_STATE, format!("shard \"{}\": {text}", target.shard()), hint)
}

impl RaisedSequences {
    /// Prepares the queries: writers wait for the answers, and must not wait for planning.
    fn prepare(&mut self, source: &mut Connection, target: &mut Connection) -> Result<()> {
        if let Some([of_source, of_target]) = positions::questions(&self.pairs) {
            source.prepare_anew(POSITIONS, &of_source)?;
            target.prepare_anew(POSITIONS, &of_target)?;
            self.asks = std::array::from_fn(|_| format!("EXECUTE {POSITIONS}"));
        }
        Ok(())
    }

    /// Returns the queries for the source and for the target.
    pub fn questions(&self, source: &mut Connection, target: &mut Connection) -> Result<[String; 2]> {
        let [of_source, of_target] = &self.lists;
        let which = [draw::question(source, of_source)?, draw::question(target, of_target)?];
        if self.pairs.is_empty() {
            return Ok(which.map(|which| format!("{which}; {ALL}")));
        }
        let still = self.still_sequences();
        Ok([0, 1].map(|side| format!("{}; {ALL}; {}; {}", which[side], still[side], self.asks[side])))
    }

    fn still_sequences(&self) -> [String; 2] {
        [
            positions::still_sequences(self.pairs.iter().flat_map(|pair| &pair.from)),
            positions::still_sequences(self.pairs.iter().map(|pair| &pair.to)),
        ]
    }

    /// Returns how many answers each of them gives.
    pub fn answers(&self) -> usize {
        if self.pairs.is_empty() { 2 } else { 4 }
    }

    /// Whether a server's message is about one of them.
    pub fn are_named_in(&self, message: &str) -> bool {
        let is_named = |name: &str| message.contains(&plain(name));
        self.pairs
            .iter()
            .any(|pair| is_named(&pair.to.name) || pair.from.iter().any(|from| is_named(&from.name)))
    }

    /// Raises them by the answers. If other sequences than the known ones exist, these are read separately.
    pub fn raise(
        &mut self,
        engine: &mut Engine,
        [source, target]: [&[Rows]; 2],
        deadline: Instant,
    ) -> Result<()> {
        let now = [source, target].map(|rows| rows.first().map(draw::read).unwrap_or_default());
        if now != self.of_columns || source.get(1).is_none_or(|all| all.rows != self.all.rows) {
            *self =
                raise(&engine.tenure.plan, &mut engine.sessions, &engine.tables, Ahead::Enough, deadline)?;
            return Ok(());
        }
        let (Some(from), Some(to)) = (source.get(3), target.get(3)) else { return Ok(()) };
        let mut positions =
            positions::read(&engine.sessions.control, from, &engine.sessions.target, to, &self.pairs)?;
        for (position, before) in positions.iter_mut().zip(&self.reached) {
            position.to = position.to.map(|to| to.known_as(*before));
        }
        self.raise_to(&mut engine.sessions.target, &positions, deadline)
    }

    fn raise_to(
        &mut self,
        target: &mut Connection,
        positions: &[SequencePosition],
        deadline: Instant,
    ) -> Result<()> {
        let Raised { reached, .. } =
            positions::raise_all(target, &self.pairs, positions, Ahead::Enough, deadline)?;
        self.reached = reached;
        Ok(())
    }

    /// Raises them after the decision, right before the target opens, by what the source has given out since. The
    /// target is indispensable now, so neither the source nor a transaction of the target is waited for long. Returns
    /// what remained undone.
    pub fn follow(&mut self, sessions: &mut EngineSessions) -> Result<Option<String>> {
        if self.pairs.is_empty() {
            return Ok(None);
        }
        let EngineSessions { control, target, .. } = sessions;
        let deadline = Instant::now() + TO_FOLLOW;
        control.set_deadline(Some(deadline));
        let asked = format!("{}; {}", self.still_sequences()[0], self.asks[0]);
        let answer = control.run(&asked);
        control.set_deadline(None);
        let positions = match answer {
            Ok(rows) => self.positions_of(control, &rows),
            Err(error) => return Ok(Some(error.to_string())),
        };
        let raised = positions.and_then(|positions| self.raise_to(target, &positions, deadline));
        match raised {
            Ok(()) => Ok(None),
            Err(SplitError::Remote(error)) if !error.is_verdict() => Err(error.into()),
            Err(error) => Ok(Some(error.to_string())),
        }
    }

    /// Returns the positions: the source's as reported, the target's as they were raised.
    fn positions_of(&self, source: &Connection, rows: &Rows) -> Result<Vec<SequencePosition>> {
        positions::with_reached(source, rows, &self.pairs, &self.reached)
    }
}

/// Records what remained undone after a decision.
pub fn tell(id: i64, reason: &str) {
    let text = format!("sequences stay where the cutover had raised them: {reason}");
    transaction(|| split::event(id, None, None, &text));
}

/// Returns a quoted name as messages contain it: without its quotes, in quotes of the message's own.
fn plain(name: &str) -> String {
    name.replace("\"\"", "\0").replace('"', "").replace('\0', "\"")
}

const NUMBERS: &str = "SELECT c.oid FROM unnest($1::name[], $2::name[]) WITH ORDINALITY w (nsp, rel, position)
      LEFT JOIN pg_namespace n ON n.nspname = w.nsp LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.rel
     ORDER BY w.position";

fn numbers(
    connection: &mut Connection,
    plan: &Plan,
    side: Side,
) -> std::result::Result<Vec<Option<String>>, RemoteError> {
    let rows = connection.query(NUMBERS, &catalogs::given(&TableNames::of(plan, side).lists()))?.rows;
    Ok(rows.into_iter().map(|row| row.into_iter().next().flatten()).collect())
}

/// Raises them for a plan whose tables were not read, without waiting for any session. One that cannot be raised does
/// not stop the others.
pub fn raise_of_plan(plan: &Plan, source: &mut Connection, target: &mut Connection) -> Result<()> {
    let plan = with_registered_now(plan);
    let oids = [numbers(source, &plan, Side::Source)?, numbers(target, &plan, Side::Target)?];
    let [of_source, of_target] = &oids;
    let tables = TableNumbers {
        source: of_source.iter().map(Option::as_deref).collect(),
        target: of_target.iter().map(Option::as_deref).collect(),
    };
    let Survey { pairs, .. } = complete(&plan, source, target, &tables)?;
    let asks = positions::questions(&pairs).unwrap_or_default();
    let positions = positions::ask(source, target, &pairs, &asks)?;
    positions::raise_all(target, &pairs, &positions, Ahead::Enough, Instant::now()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_names_without_quotes() {
        for (quoted, written) in [
            ("public.items_id_seq", "public.items_id_seq"),
            (r#"public."Items seq""#, "public.Items seq"),
            (r#""a""b"."""c""#, r#"a"b."c"#),
        ] {
            assert_eq!(plain(quoted), written);
        }
    }
}
