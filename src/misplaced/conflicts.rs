//! Only rows whose primary key the right shard has with other content are deleted at the wrong one. All of a lot are
//! deleted in one transaction: the right shard returns which they are, the wrong one returns them by deleting them,
//! and the right one checks again.

use super::batch::{begin, make_stage, require_asked_for, require_no_reference, require_none_absent};
use super::session::{MoveSession, Sees};
use super::statements;
use crate::error::Failure;
use crate::misplaced::key_batch::Lot;
use crate::misplaced::table_pair::MovedTable;
use crate::remote::copy::Bounds;
use crate::remote::pipe;
use std::time::Duration;

/// Does everything but the commits; returns how many rows of each table. Rows that refer to others come first.
pub fn delete<'a>(
    lot: &'a Lot,
    here: &mut MoveSession,
    there: &mut MoveSession,
    timeout: Duration,
) -> Result<Vec<(&'a str, u64)>, Failure> {
    here.patient_for(timeout);
    there.patient_for(timeout);
    let facts = [Some(&lot.here), lot.there.as_ref()];
    for (session, facts) in [&mut *here, &mut *there].into_iter().zip(facts.into_iter().flatten()) {
        begin(session, facts, Sees::Latest, &[], timeout)?;
    }
    let mut deleted = Vec::new();
    for position in lot.units.iter().flat_map(|unit| unit.tables.iter().rev()) {
        let pair = &lot.pairs[*position];
        find(lot, pair, here, there)?;
        require_no_follower(lot, *position, here)?;
        deleted.push((pair.name.as_str(), take(lot, pair, here, there)?));
    }
    here.connection.run("SET CONSTRAINTS ALL IMMEDIATE")?;
    Ok(deleted)
}

/// Tells the wrong shard which of its rows differ from the right one's.
fn find(
    lot: &Lot,
    pair: &MovedTable,
    here: &mut MoveSession,
    there: &mut MoveSession,
) -> Result<(), Failure> {
    make_stage(there, pair)?;
    copy_rows(pair, [&statements::read(pair, &lot.keys), &statements::fill_stage(pair)], here, there)?;
    require_asked_for(pair, &lot.keys, there, &here.shard.shard_key)?;
    there.connection.run(&statements::drop_equal(pair, &lot.keys))?;
    here.connection.run(&statements::make_arrived(pair))?;
    copy_rows(pair, [&statements::conflicting(pair), &statements::fill_arrived(pair)], there, here).map(drop)
}

/// Requires that the server would delete no other row along with them, since it may exist nowhere else.
fn require_no_follower(lot: &Lot, position: usize, here: &mut MoveSession) -> Result<(), Failure> {
    for key in lot.followers(position) {
        require_no_reference(here, key, &statements::is_followed(&lot.pairs[position], key))?;
    }
    Ok(())
}

/// Deletes them as they are by now: none of them may exist only on the wrong shard, whatever clients have done since.
fn take(
    lot: &Lot,
    pair: &MovedTable,
    here: &mut MoveSession,
    there: &mut MoveSession,
) -> Result<u64, Failure> {
    there.connection.run(&statements::empty_stage(pair))?;
    let rows = copy_rows(
        pair,
        [&statements::take_arrived(pair, &lot.keys), &statements::fill_stage(pair)],
        here,
        there,
    )?;
    let absent = there.connection.run(&statements::missing_keys(pair))?;
    require_none_absent(pair, &absent, there, &here.shard.shard_key)?;
    Ok(rows)
}

fn copy_rows(
    pair: &MovedTable,
    [out, into]: [&str; 2],
    from: &mut MoveSession,
    to: &mut MoveSession,
) -> Result<u64, Failure> {
    pipe::statements(&mut from.connection, out, &mut to.connection, into, Bounds::unlimited())
        .map(|copied| copied.rows)
        .map_err(|error| error.of_table(&pair.name).into())
}
