//! Keys that belong on one shard, and what is done with their rows there and here.

use crate::catalog::misplaced_run::Action;
use crate::catalog::table_policy::{TableName, TablePolicy};
use crate::error::Failure;
use crate::misplaced::error;
use crate::misplaced::facts::{self, MisplacedFacts};
use crate::misplaced::fk_group::{self, Unit};
use crate::misplaced::session::MoveSession;
use crate::misplaced::statements;
use crate::misplaced::table_pair::{MoveSide, MovedTable};
use std::collections::BTreeSet;

pub struct Lot {
    pub action: Action,
    /// The shard that they belong on. `None` if there is none.
    pub target: Option<String>,
    /// The keys in their canonical form, in order.
    pub keys: Vec<String>,
    pub pairs: Vec<MovedTable>,
    pub units: Vec<Unit>,
    pub here: MisplacedFacts,
    /// `None` if nothing is moved there.
    pub there: Option<MisplacedFacts>,
}

/// What applies to all lots.
pub struct Wish<'a> {
    pub action: Action,
    pub keyspace: &'a str,
    pub tables: &'a [TablePolicy],
    pub fire_triggers: bool,
}

impl Lot {
    /// Reads both shards. A table in a schema of its own that both share is in its right place there.
    pub fn prepare(
        wish: &Wish<'_>,
        mut keys: Vec<String>,
        here: &mut MoveSession,
        mut there: Option<&mut MoveSession>,
    ) -> Result<Lot, Failure> {
        keys.sort_unstable();
        let mut tables = wish.tables.to_vec();
        if let Some(there) = there.as_deref_mut()
            && here.shares_database(there)?
        {
            if here.shard.namespace == there.shard.namespace {
                let (here, there) = (&here.shard, &there.shard);
                return Err(error::same_place(&here.shard_key, &there.shard_key, &here.namespace));
            }
            tables.retain(|policy| TableName::of(&policy.table_name).schema.is_none());
        }
        let target = there.as_deref().map(|there| there.shard.shard_key.clone());
        let compares = wish.action.compares();
        if let (true, Some(there)) = (compares, there.as_deref_mut()) {
            require_encodings(here, there)?;
        }
        let facts = facts::look(here, &tables)?;
        let there = there.filter(|_| compares).map(|there| facts::look(there, &tables)).transpose()?;
        let mut pairs = pairs(&tables, &here.shard.shard_key, &facts, target.as_deref(), there.as_ref())?;
        for pair in &mut pairs {
            pair.strangers = strangers(here, pair, &keys)?;
            let other = here.connection.run(&statements::other_spelling(pair, &keys))?;
            if let Some(key) = other.scalar() {
                let what = format!("has a column in which key \"{key}\" is written differently");
                return Err(error::unfit_table(&here.shard.shard_key, &pair.here, &what));
            }
        }
        if compares {
            require_no_rule(here, &facts)?;
        }
        if wish.action == Action::Move && !wish.fire_triggers {
            require_no_trigger(here, &facts)?;
        }
        let other = there.as_ref().map(|facts| facts.foreign_keys.as_slice()).unwrap_or_default();
        let units = fk_group::units(tables.len(), &facts.foreign_keys, other)
            .ok_or_else(|| error::foreign_key_cycle(wish.keyspace))?;
        Ok(Lot { action: wish.action, target, keys, pairs, units, here: facts, there })
    }

    /// Returns the foreign keys by which rows would be deleted or changed with those of a table, at the wrong shard.
    pub fn followers(&self, position: usize) -> impl Iterator<Item = &facts::ForeignKey> {
        self.here
            .foreign_keys
            .iter()
            .filter(move |key| key.follows_deletes() && key.to_position == Some(position))
    }
}

fn pairs(
    tables: &[TablePolicy],
    shard: &str,
    here: &MisplacedFacts,
    target: Option<&str>,
    there: Option<&MisplacedFacts>,
) -> Result<Vec<MovedTable>, Failure> {
    let here = MoveSide { shard, facts: here };
    let there = there.map(|facts| MoveSide { shard: target.unwrap_or_default(), facts });
    let pair = |(position, policy): (usize, &TablePolicy)| match &there {
        Some(there) => MovedTable::of(&policy.table_name, &policy.shard_by, position, [&here, there]),
        None => MovedTable::alone(&policy.table_name, &policy.shard_by, position, &here),
    };
    tables.iter().enumerate().map(pair).collect()
}

/// Encodings between which every text is copied unchanged, or not at all.
const ONE_TO_ONE: [&str; 2] = ["UTF8", "LATIN1"];

fn require_encodings(here: &mut MoveSession, there: &mut MoveSession) -> Result<(), Failure> {
    for session in [here, there] {
        let found = session.connection.run("SHOW server_encoding")?;
        let encoding = found.scalar().unwrap_or_default();
        if !ONE_TO_ONE.contains(&encoding) {
            return Err(error::unfit_encoding(&session.shard.shard_key, encoding));
        }
    }
    Ok(())
}

/// Returns keys that are no values of the column's type, so that they can have no rows.
fn strangers(
    here: &mut MoveSession,
    pair: &MovedTable,
    keys: &[String],
) -> Result<BTreeSet<String>, Failure> {
    let mut found = BTreeSet::new();
    if is_stranger(here, pair, keys)? {
        for key in keys {
            if is_stranger(here, pair, std::slice::from_ref(key))? {
                found.insert(key.clone());
            }
        }
    }
    Ok(found)
}

fn is_stranger(here: &mut MoveSession, pair: &MovedTable, keys: &[String]) -> Result<bool, Failure> {
    match here.connection.run(&statements::try_keys(pair, keys)) {
        Ok(_) => Ok(false),
        Err(error) if error.sqlstate.is_some_and(|state| state.as_str().starts_with("22")) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Refuses rules: a deletion that a rule replaces returns no rows.
fn require_no_rule(here: &mut MoveSession, facts: &MisplacedFacts) -> Result<(), Failure> {
    match facts::rule(here, &facts.names)? {
        Some((table, rule)) => {
            let what = format!("has a rule ON DELETE, {rule}");
            Err(error::unfit_table(&here.shard.shard_key, &table, &what))
        }
        None => Ok(()),
    }
}

fn require_no_trigger(here: &mut MoveSession, facts: &MisplacedFacts) -> Result<(), Failure> {
    match facts::trigger(here, &facts.names)? {
        Some(what) => Err(error::trigger_fires(&here.shard.shard_key, &what)),
        None => Ok(()),
    }
}
