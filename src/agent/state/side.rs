//! The table `side`: the state of each side of a split, which clients' triggers read. Only the changes defined here
//! are made, each committed synchronously.

use super::decision::{self, Decided};
use super::{LONGEST, MANY, ask, has, or_gone, require_few};
use crate::agent::error::{Result, SplitError};
use crate::agent::session::Side;
use crate::catalog::split::Plan;
use crate::clean;
use crate::error::{Failure, SqlState};
use crate::keys::strategy::Strategy;
use crate::remote::Connection;
use crate::remote::quote::{self, literal};
use crate::remote::result::Rows;

/// How a side treats its clients' writes of the moving keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SideState {
    /// A source admits them and queues their keys.
    Capture,
    /// A source refuses them for the moment of a cutover.
    Fenced,
    /// A source refuses them, and names the target.
    Moved,
    /// A target refuses them, since it does not have all of the rows.
    Closed,
    /// A target admits them.
    Open,
    /// A target admits them, and nothing of the split is left there but this row.
    Left,
}

impl SideState {
    pub const ALL: [SideState; 6] = [
        SideState::Capture,
        SideState::Fenced,
        SideState::Moved,
        SideState::Closed,
        SideState::Open,
        SideState::Left,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            SideState::Capture => "capture",
            SideState::Fenced => "fenced",
            SideState::Moved => "moved",
            SideState::Closed => "closed",
            SideState::Open => "open",
            SideState::Left => "left",
        }
    }

    fn parse(text: &str) -> Option<SideState> {
        SideState::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Returns the state that a side begins with.
    pub fn first(side: Side) -> SideState {
        match side {
            Side::Source => SideState::Capture,
            Side::Target => SideState::Closed,
        }
    }
}

/// What happens to a side's routing version when it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version<'a> {
    None,
    Kept,
    /// It becomes that of the decision.
    Is(Decided<'a>),
}

/// A change that a side may make.
#[derive(Debug)]
pub struct SideChange {
    pub side: Side,
    pub from: SideState,
    pub to: SideState,
}

/// A cutover blocks writers.
pub const FENCE: SideChange =
    SideChange { side: Side::Source, from: SideState::Capture, to: SideState::Fenced };
/// A cutover is undone: writers are admitted again.
pub const REOPEN: SideChange =
    SideChange { side: Side::Source, from: SideState::Fenced, to: SideState::Capture };
/// A cutover was decided: the source refuses its clients for good.
pub const MOVE: SideChange = SideChange { side: Side::Source, from: SideState::Fenced, to: SideState::Moved };
/// A cutover was decided: the target admits clients.
pub const OPEN: SideChange = SideChange { side: Side::Target, from: SideState::Closed, to: SideState::Open };
/// A finish has left the target.
pub const LEAVE: SideChange = SideChange { side: Side::Target, from: SideState::Open, to: SideState::Left };

impl SideChange {
    /// Makes the change in the caller's transaction, which the generation permits. Returns false if the side was in
    /// another state.
    pub fn write(&self, connection: &mut Connection, split: i64, version: Version<'_>) -> Result<bool> {
        let changed = connection.run(&self.statement(split, version))?;
        Ok(changed.rows.len() == 1)
    }

    /// Returns the statement, which gives a row if the side was in that state. A second statement, which gives none,
    /// notes a decision with it.
    pub fn statement(&self, split: i64, version: Version<'_>) -> String {
        match version {
            Version::None => self.of_side(split, "NULL"),
            Version::Kept => self.of_side(split, "version"),
            Version::Is(decided) => {
                format!(
                    "{}; {}",
                    self.of_side(split, &decided.version.to_string()),
                    self.note(split, decided)
                )
            }
        }
    }

    /// Returns the second statement. All cutovers of a keyspace write the same row: a transaction that waits for
    /// anything else runs it last.
    pub fn note(&self, split: i64, decided: Decided<'_>) -> String {
        decision::note(split, self.side, self.to.as_str(), decided)
    }

    /// Returns the first statement. A side that is in the state already gets the version of a restored master that has
    /// decided once more by what the shards knew: that version is higher if others came first.
    pub fn of_side(&self, split: i64, version: &str) -> String {
        let [to, side, from] = [self.to.as_str(), self.side.as_str(), self.from.as_str()].map(literal);
        let is_later = match version.parse::<i64>() {
            Ok(version) => format!("OR state = {to} AND version < {version}"),
            Err(_) => String::new(),
        };
        format!(
            "UPDATE shardmaster_agent.side SET state = {to}, version = {version}
              WHERE split_id = {split} AND side = {side} AND (state = {from} {is_later}) RETURNING 1"
        )
    }
}

/// A side's own record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SideRow {
    pub state: SideState,
    /// The routing version since which the keys are on the other side, or here.
    pub version: Option<i64>,
}

impl SideRow {
    /// Returns the version with which the target was opened, or None if it was not.
    pub fn opened(self) -> Option<i64> {
        self.version.filter(|_| matches!(self.state, SideState::Open | SideState::Left))
    }
}

/// Returns a side's record, or None if there is no such side.
pub fn read(connection: &mut Connection, split: i64, side: Side) -> Result<Option<SideRow>> {
    let rows = connection.run(&format!(
        "SELECT state, version FROM shardmaster_agent.side WHERE split_id = {split} AND side = {}",
        literal(side.as_str())
    ))?;
    let Some([Some(text), version]) = rows.rows.first().map(Vec::as_slice) else { return Ok(None) };
    let Some(state) = SideState::parse(text) else {
        return Err(SplitError::failed(
            SqlState::NOT_IN_STATE,
            format!(
                "shard \"{}\" reports the state \"{text}\" for the {} of split {split}, which does not exist",
                connection.shard(),
                side.as_str()
            ),
            "Another version of the extension installed it, or somebody has changed the agent's tables there.",
        ));
    };
    Ok(Some(SideRow { state, version: version.as_deref().and_then(|version| version.parse().ok()) }))
}

/// Returns only the state.
pub fn state(connection: &mut Connection, split: i64, side: Side) -> Result<Option<SideState>> {
    Ok(read(connection, split, side)?.map(|row| row.state))
}

/// Returns a FROM clause for the capture trigger that has a row if the queue takes entries.
pub fn if_captured(split: i64) -> String {
    format!(
        "FROM shardmaster_agent.side WHERE split_id OPERATOR(pg_catalog.=) {split}
            AND side OPERATOR(pg_catalog.=) 'source' AND state OPERATOR(pg_catalog.=) '{}'",
        SideState::Capture.as_str()
    )
}

/// Whether finish has left a target: the source's moved rows are deleted, and the target's guard is dropped.
pub fn is_left(target: &mut Connection, split: i64) -> Result<bool> {
    Ok(state(target, split, Side::Target)? == Some(SideState::Left))
}

/// Inserts the row of a side that begins; an existing one stays as it is.
pub fn insert(connection: &mut Connection, plan: &Plan, side: Side, entries: &str) -> Result<()> {
    let (own, other) = (side.shard(plan), side.other().shard(plan));
    connection.query(
        "INSERT INTO shardmaster_agent.side
                (split_id, side, state, token, shard, other_shard, namespace, keyspace, entries)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
        &[
            Some(&plan.id.to_string()),
            Some(side.as_str()),
            Some(SideState::first(side).as_str()),
            Some(&plan.token),
            Some(&own.shard_key),
            Some(&other.shard_key),
            Some(&own.namespace),
            Some(&plan.keyspace),
            Some(entries),
        ],
    )?;
    Ok(())
}

/// Returns the query for other splits of the same keyspace whose keys have left this database and that are not
/// finished, in the order in which all splits lock them.
pub fn moved_away(plan: &Plan, entries: &str) -> String {
    let [token, namespace, keyspace, entries, moved] =
        [&*plan.token, &*plan.target.namespace, &*plan.keyspace, entries, SideState::Moved.as_str()]
            .map(literal);
    format!(
        "SELECT split_id FROM shardmaster_agent.side
          WHERE side = 'source' AND state = {moved} AND (split_id <> {} OR token <> {token})
            AND namespace = {namespace} AND keyspace = {keyspace} AND entries = {entries} ORDER BY split_id",
        plan.id
    )
}

/// Returns the splits that such a query has found.
pub fn numbers(splits: &Rows) -> Vec<i64> {
    splits.rows.iter().filter_map(|row| row.first()?.as_deref()?.parse().ok()).collect()
}

/// A side of a split on a shard.
pub struct FoundSide {
    pub id: i64,
    pub side: Side,
    /// `None` if its triggers have lost their state row.
    pub token: Option<String>,
    /// For a source whose rows have left: their new shard, and the kind of its entries.
    pub moved: Option<(String, Strategy)>,
}

/// Returns the reverse splits of a split that have not begun: sources with a permanent lease.
pub fn resting(connection: &mut Connection, token: &str) -> Result<Vec<i64>> {
    let rows = ask(
        connection,
        "side",
        &format!(
            "SELECT s.split_id FROM shardmaster_agent.side s JOIN shardmaster_agent.lease l ON l.split_id = s.split_id
              WHERE s.side = 'source' AND s.state = '{}' AND s.token = $1 AND l.open_until = 'infinity' LIMIT {MANY}",
            SideState::Capture.as_str()
        ),
        &[Some(token)],
    )?;
    Ok(rows.rows.iter().flatten().flatten().filter_map(|id| id.parse().ok()).collect())
}

/// Returns the sides, found by their state rows, and by triggers that have lost theirs.
pub fn all(connection: &mut Connection) -> Result<Vec<FoundSide>> {
    let mut query = "SELECT DISTINCT (regexp_match(f.proname, '^(?:capture|guard)_(\\d+)_'))[1] AS id,
                CASE WHEN starts_with(f.proname, 'capture') THEN 'source' ELSE 'target' END AS side
           FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid
          WHERE f.pronamespace = to_regnamespace('shardmaster_agent') AND f.proname ~ '^(capture|guard)_\\d{1,18}_'"
        .to_owned();
    if has(connection, "side")? {
        query = format!(
            "SELECT coalesce(t.id, s.split_id::text), left(coalesce(t.side, s.side), {LONGEST}), left(s.token, {LONGEST}),
                    CASE WHEN s.state = '{moved}' THEN left(s.other_shard, {LONGEST}) END, left(s.entries, {LONGEST})
               FROM ({query}) t FULL JOIN shardmaster_agent.side s ON s.split_id = t.id::bigint AND s.side = t.side",
            moved = SideState::Moved.as_str()
        );
    } else {
        query = format!("SELECT t.id, t.side, NULL, NULL, NULL FROM ({query}) t");
    }
    let rows = or_gone(connection, &format!("{query} LIMIT {MANY} + 1"), &[])?;
    require_few(connection, rows.rows.len())?;
    let found = rows.rows.into_iter().filter_map(|row| match row.as_slice() {
        [Some(id), Some(side), token, moved_to, entries] => {
            let side = Side::named(side);
            // A compromised server may send texts of any length, so they are truncated here.
            let moved_to = moved_to.as_deref().map(clean::message);
            let moved = moved_to.zip(entries.as_deref().and_then(Strategy::of_entries));
            let token = token.as_deref().map(clean::message);
            id.parse().ok().map(|id| FoundSide { id, side, token, moved })
        }
        _ => None,
    });
    Ok(found.collect())
}

/// Which split owns the objects that a shard has under a split's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Installed {
    No,
    Ours,
    /// They belong to another split: a restored master gives numbers out again.
    Foreign,
}

/// Returns what the shard has of a side, identified by the plan's token.
pub fn installed(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Installed> {
    let rows = ask(
        connection,
        "side",
        "SELECT token = $3 FROM shardmaster_agent.side WHERE split_id = $1 AND side = $2",
        &[Some(&plan.id.to_string()), Some(side.as_str()), Some(&plan.token)],
    )?;
    Ok(match rows.scalar() {
        None => Installed::No,
        Some("t") => Installed::Ours,
        Some(_) => Installed::Foreign,
    })
}

/// Returns the error of `Installed::Foreign`, and of its finding.
pub fn foreign(shard: &str, plan: &Plan) -> Failure {
    Failure::new(
        SqlState::IN_USE,
        format!("shard \"{shard}\" has objects of another split {}, which this master does not know", plan.id),
    )
    .hint(format!(
        "This master was restored and has used the number again. SELECT shard_adopt({}) moves its numbers on. Then roll this plan back and plan again.",
        quote::literal(shard)
    ))
}

/// Refuses a shard that has another split's objects under the plan's number.
pub fn require_own(connection: &mut Connection, plan: &Plan, side: Side) -> Result<()> {
    match installed(connection, plan, side)? {
        Installed::No | Installed::Ours => Ok(()),
        Installed::Foreign => Err(foreign(connection.shard(), plan).into()),
    }
}

pub fn delete(split: i64, side: Side) -> String {
    format!(
        "DELETE FROM shardmaster_agent.side WHERE split_id = {split} AND side = {}",
        literal(side.as_str())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGES: [&SideChange; 5] = [&FENCE, &REOPEN, &MOVE, &OPEN, &LEAVE];

    #[test]
    fn every_state_is_reached_from_the_first_of_its_side() {
        for side in [Side::Source, Side::Target] {
            let mut reached = vec![SideState::first(side)];
            while let Some(next) = CHANGES
                .iter()
                .find(|c| c.side == side && reached.contains(&c.from) && !reached.contains(&c.to))
            {
                reached.push(next.to);
            }
            let of_side =
                |state: &&SideState| CHANGES.iter().any(|c| c.side == side && [c.from, c.to].contains(state));
            assert_eq!(SideState::ALL.iter().filter(of_side).count(), reached.len(), "{side:?}");
        }
    }

    #[test]
    fn no_way_leads_back_from_a_decision() {
        assert!(CHANGES.iter().all(|c| !matches!(c.from, SideState::Moved | SideState::Left)));
        assert!(CHANGES.iter().all(|c| c.to != SideState::Closed));
    }

    #[test]
    fn the_table_takes_the_same_states() {
        let sql = include_str!("../../../sql/agent/bootstrap.sql");
        let names: Vec<String> = SideState::ALL.iter().map(|state| format!("'{}'", state.as_str())).collect();
        assert!(sql.contains(&format!("CHECK (state IN ({}))", names.join(", "))));
        assert_eq!(SideState::ALL.map(|state| SideState::parse(state.as_str())), SideState::ALL.map(Some));
    }
}
