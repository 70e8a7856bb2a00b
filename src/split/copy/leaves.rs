//! The partitions that rows of the scope may be in. Rows that are added by ATTACH PARTITION fire no trigger. On the
//! target a row of the split is only ever in a leaf that was checked before: a step checks new ones before it writes,
//! and again at the end, so that nothing was written to one that was added meanwhile.

use super::apart;
use crate::agent::error::{Result, SplitError};
use crate::agent::reading::LockedTables;
use crate::agent::session::Side;
use crate::agent::shape::{Column, Leaf, Observation, TableShape};
use crate::agent::state::epoch::Tenure;
use crate::agent::state::progress::{self, CopyProgress, TableProgress, TargetLeaf};
use crate::agent::{known_column, seen};
use crate::catalog::split::Plan;
use crate::error::{Failure, SqlState};
use crate::remote::Connection;
use crate::remote::quote::{array_literal, ident, literal};
use crate::split::copy::key_identity::KeyIdentity;
use crate::split::engine::Engine;
use crate::split::table::{SplitTable, triggers};
use crate::words::{from_the_beginning, gives_up};

/// A row of the scope in a place where none must be.
pub struct Stranger {
    /// The table or leaf, qualified and quoted.
    pub table: String,
    /// Its shard-by value as text.
    pub key: String,
}

/// Returns the first row of the scope in a table, or with `only` in one leaf of it.
pub fn find_row(
    connection: &mut Connection,
    plan: &Plan,
    column: &Column,
    table: &str,
    only: bool,
) -> Result<Option<Stranger>> {
    let rows = connection.run_unbounded(&format!(
        "SELECT t.{}::text FROM {} {table} t WHERE {} LIMIT 1",
        ident(&column.name),
        if only { "ONLY" } else { "" },
        plan.scope.predicate(column, "t")
    ))?;
    Ok(rows.scalar().map(|key| Stranger { table: table.to_owned(), key: key.to_owned() }))
}

/// The greatest number of tables that are searched in one query.
const MOST_LOOKED_THROUGH: usize = 100;

/// Returns the first row of the scope in any of some tables.
pub fn find_first(
    connection: &mut Connection,
    plan: &Plan,
    tables: &[(&Column, &str)],
) -> Result<Option<Stranger>> {
    for some in tables.chunks(MOST_LOOKED_THROUGH) {
        let look = |(column, table): &(&Column, &str)| {
            format!(
                "(SELECT {}, t.{}::text FROM {table} t WHERE {} LIMIT 1)",
                literal(table),
                ident(&column.name),
                plan.scope.predicate(column, "t")
            )
        };
        let looks: Vec<String> = some.iter().map(look).collect();
        let rows = connection
            .run_unbounded(&format!("SELECT * FROM ({}) found LIMIT 1", looks.join(" UNION ALL ")))?;
        if let Some([Some(table), Some(key)]) = rows.rows.first().map(Vec::as_slice) {
            return Ok(Some(Stranger { table: table.clone(), key: key.clone() }));
        }
    }
    Ok(None)
}

/// Returns the target's leaves as they are stored.
pub fn of(shape: &TableShape) -> Vec<TargetLeaf> {
    shape.leaves().iter().map(TargetLeaf::from).collect()
}

/// What happened to a leaf since it was last checked.
#[derive(PartialEq, Eq, Debug)]
pub enum Since {
    Same,
    /// It was attached, perhaps again: the clones of the split's triggers are new ones.
    New,
    /// Its triggers were disabled, dropped or changed.
    Unguarded,
}

/// Compares a leaf with its earlier triggers.
pub fn since(before: Option<&str>, leaf: &Leaf) -> Since {
    let now = leaf.triggers.as_deref().unwrap_or_default();
    match before {
        Some(before) if before == now => Since::Same,
        Some(before) if !leaf.captured || oids(before) == oids(now) => Since::Unguarded,
        Some(_) | None => Since::New,
    }
}

/// Returns the oids in a list of `name oid xmin enabled, ...`.
fn oids(triggers: &str) -> Vec<&str> {
    triggers.split(", ").filter_map(|trigger| trigger.split(' ').nth(1)).collect()
}

/// Checks the leaves that are new on the target since the last step: one with a row of the scope is an error. After a
/// pg_upgrade of the target its leaves have the same oids, with triggers of new oids. Returns the tables (by position)
/// of which a leaf is gone, and its rows with it.
pub fn admit(
    plan: &Plan,
    target: &mut Connection,
    tables: &mut [SplitTable],
    progress: &mut CopyProgress,
    now: &Observation,
) -> Result<Vec<usize>> {
    let system = now.system();
    let is_upgraded = progress.target_system.as_deref().is_some_and(|known| known != system);
    progress.target_system = Some(system.to_owned());
    let (mut lost, mut admitted) = (Vec::new(), is_upgraded);
    for (position, shape) in now.tables.iter().enumerate() {
        let Some(table) = progress.tables.get(position) else { continue };
        let mut leaves = stored_leaves(progress, table, shape);
        let before = leaves.len();
        if !is_upgraded && is_computed_anew(table, &leaves, shape) {
            lost.push(position);
        }
        leaves.retain(|known| shape.leaves().iter().any(|leaf| leaf.oid == known.oid));
        if leaves.len() < before && !lost.contains(&position) {
            lost.push(position);
        }
        for leaf in shape.leaves() {
            let stored = leaves.iter().position(|known| known.oid == leaf.oid);
            if let Some(index) = stored {
                leaves[index].filenode.clone_from(&leaf.filenode);
            }
            if let (Some(index), true, true) = (stored, is_upgraded, leaf.captured) {
                leaves[index].triggers = leaf.triggers.clone().unwrap_or_default();
                continue;
            }
            match since(stored.map(|index| leaves[index].triggers.as_str()), leaf) {
                Since::Same => continue,
                Since::Unguarded => return Err(unguarded(plan, shape, leaf)),
                Since::New => {}
            }
            if !leaf.captured {
                return guard(plan, target, tables, position, shape);
            }
            look_through(plan, target, &tables[position], shape, leaf)?;
            if let Some(index) = stored {
                // The leaf was detached and attached again: its rows of the split are gone.
                leaves.remove(index);
                if !lost.contains(&position) {
                    lost.push(position);
                }
            }
            leaves.push(TargetLeaf::from(leaf));
            admitted = true;
        }
        remember(&mut progress.tables[position], leaves, shape);
    }
    if !admitted {
        return Ok(lost);
    }
    store(plan.id, target, progress, &lost, now)?;
    Err(SplitError::Retry("the target's new partitions to be included".into()))
}

/// Returns the leaves of a table as they were when they were last checked.
fn stored_leaves(progress: &CopyProgress, table: &TableProgress, shape: &TableShape) -> Vec<TargetLeaf> {
    match &table.target_leaves {
        // The split was installed by a version that did not check leaves.
        None if progress.snapshot.is_some() => of(shape),
        known => known.clone().unwrap_or_default(),
    }
}

/// Records the leaves of a table that was checked.
fn remember(table: &mut TableProgress, leaves: Vec<TargetLeaf>, shape: &TableShape) {
    table.target_leaves = Some(leaves);
    table.target_altered.clone_from(&shape.altered);
    table.target_columns.get_or_insert_with(|| known_column::of(shape));
}

/// Whether values may have been recomputed: copied rows are in another file, and the table's columns were changed.
/// VACUUM FULL and CLUSTER leave values as they were; `ALTER COLUMN .. TYPE .. USING` may change them, and leaves no
/// other trace if the type stays.
fn is_computed_anew(table: &TableProgress, leaves: &[TargetLeaf], shape: &TableShape) -> bool {
    let has_moved = |known: &TargetLeaf| {
        let now = shape.leaves().iter().find(|leaf| leaf.oid == known.oid);
        known.filenode.is_some() && now.is_some_and(|leaf| leaf.filenode != known.filenode)
    };
    table.target_altered.is_some() && table.target_altered != shape.altered && leaves.iter().any(has_moved)
}

/// Stores the leaves in a transaction of its own: a step that finds nothing to do commits nothing. Leaves that are
/// gone stay in the list until their table's copy has begun again.
fn store(
    split: i64,
    target: &mut Connection,
    progress: &CopyProgress,
    lost: &[usize],
    now: &Observation,
) -> Result<()> {
    let mut stored = progress.clone();
    for position in lost {
        if let (Some(table), Some(_)) = (stored.tables.get_mut(*position), now.tables.get(*position)) {
            let gone = TargetLeaf { oid: "0".into(), triggers: String::new(), filenode: None };
            table.target_leaves.get_or_insert_with(Vec::new).push(gone);
        }
    }
    progress::store(target, split, &stored)?;
    target.run("COMMIT")?;
    Ok(())
}

/// Creates the TRUNCATE trigger of new leaves; the other triggers are clones.
fn guard(
    plan: &Plan,
    target: &mut Connection,
    tables: &mut [SplitTable],
    position: usize,
    shape: &TableShape,
) -> Result<Vec<usize>> {
    target.run("ROLLBACK")?;
    if let Some(table) = tables.get_mut(position) {
        table.target = shape.clone();
        triggers::install(target, plan, std::slice::from_ref(table), Side::Target)?;
    }
    Err(SplitError::Retry(format!("the new partitions of {} on the target to be guarded", shape.name)))
}

fn look_through(
    plan: &Plan,
    target: &mut Connection,
    table: &SplitTable,
    shape: &TableShape,
    leaf: &Leaf,
) -> Result<()> {
    let problem =
        |message: String, hint: &str| SplitError::failed(SqlState::NOT_IN_STATE, message, hint.to_owned());
    if leaf.persistence != "p" || leaf.kind != "r" {
        return Err(problem(
            format!(
                "partition {} of table {} on the target is not an ordinary, logged table",
                leaf.name, shape.name
            ),
            "Detach it on the target, then resume the split with the call that it stopped in.",
        ));
    }
    let column = &table.target_by;
    match find_row(target, plan, column, &leaf.name, true)? {
        None => Ok(()),
        Some(stranger) => Err(problem(
            format!(
                "partition {} was attached to table {} on shard \"{}\" with rows of key \"{}\", which is moving there",
                leaf.name,
                shape.name,
                target.shard(),
                stranger.key
            ),
            "Detach it on the target and move these rows away. Then resume the split with the call that it stopped in, or roll it back.",
        )),
    }
}

/// What a rollback does with the target's rows in this case.
pub const OF_STRANGERS: &str = "Others may have written to the moving rows, so that a rollback leaves them there. Check them, and delete them before the split starts again.";

fn unguarded(plan: &Plan, shape: &TableShape, leaf: &Leaf) -> SplitError {
    SplitError::Failed(
        Failure::new(
            SqlState::NOT_IN_STATE,
            format!("the guard of table {} was changed on the target while rows move into it", shape.name),
        )
        .detail(format!("triggers of {} now: {}", leaf.name, leaf.triggers.as_deref().unwrap_or("none")))
        .hint(match plan.reverse_of {
            None => format!("{OF_STRANGERS} {}", from_the_beginning(plan.id)),
            Some(there) => gives_up(plan.id, there),
        }),
    )
}

/// Checks at the end of a step that the target's leaves are those that it began with. One that was added meanwhile may
/// have taken rows of the step.
pub fn check_unchanged(engine: &mut Engine, progress: &CopyProgress) -> Result<()> {
    let Engine { tenure: Tenure { plan, .. }, sessions, tables, seen, .. } = engine;
    if !tables.iter().any(|table| table.target.is_partitioned()) {
        return Ok(());
    }
    let now = seen.target.look(&mut sessions.target, plan, Side::Target)?;
    let same = now.tables.iter().zip(&progress.tables).all(|(shape, table)| {
        let known = table.target_leaves.as_deref().unwrap_or_default();
        known.len() == shape.leaves().len()
            && shape.leaves().iter().all(|leaf| {
                let before = known.iter().find(|known| known.oid == leaf.oid);
                since(before.map(|known| known.triggers.as_str()), leaf) == Since::Same
            })
    });
    if same {
        return Ok(());
    }
    sessions.target.run("ROLLBACK")?;
    sessions.reader.run("ROLLBACK")?;
    Err(SplitError::Retry("the target's partitions, which changed during a step".into()))
}

/// Checks before finish deletes anything, and once more after its last batch, that the source's leaves have refused
/// stale clients all the time since the last step, and that no row of the scope is in a leaf that the step did not
/// know. Such a row was added by ATTACH PARTITION after the keys had moved, so the target need not have it.
pub fn check_source_before_finish(
    source: &mut Connection,
    locked: &LockedTables,
    target: &mut Connection,
    plan: &Plan,
) -> Result<()> {
    let Some(progress) = progress::stored(target, plan)? else { return Ok(()) };
    let now = seen::look(source, plan, Side::Source)?;
    locked.require_leaves(source.shard(), &now.tables)?;
    apart::require_to_finish(source.shard(), &now.tables)?;
    let is_upgraded = progress.server.split(':').next() != Some(now.system());
    for ((policy, shape), known) in plan.tables.iter().zip(&now.tables).zip(&progress.tables) {
        let Some(column) = shape.column(&policy.shard_by) else { continue };
        if let Some(heir) = &shape.heir {
            return Err(not_frozen(plan, &shape.name, &format!("{heir} inherits from it")));
        }
        for leaf in shape.leaves() {
            if let Some(known) = known.leaves.iter().find(|known| known.oid == leaf.oid) {
                if !is_upgraded && since(Some(&known.triggers), leaf) != Since::Same || !leaf.captured {
                    let now = leaf.triggers.as_deref().unwrap_or("none");
                    let detail = format!("triggers of {}: before: {}; now: {now}", leaf.name, known.triggers);
                    return Err(not_frozen(plan, &shape.name, &detail));
                }
                continue;
            }
            if let Some(found) = find_row(source, plan, column, &leaf.name, true)? {
                return Err(came_later(plan, shape, leaf, &found));
            }
        }
    }
    Ok(())
}

/// Returns the error for a leaf with rows of the scope that no step has seen.
fn came_later(plan: &Plan, shape: &TableShape, leaf: &Leaf, found: &Stranger) -> SplitError {
    let (table, source, id) = (&shape.name, &plan.source.shard_key, plan.id);
    if shape.oid.as_deref() == Some(&leaf.oid) {
        return SplitError::failed(
            SqlState::NOT_IN_STATE,
            format!(
                "table {table} of shard \"{source}\" is not the one whose rows were moved: it was replaced since, and has rows of key \"{}\"",
                found.key
            ),
            format!(
                "The target does not have these rows. Rename the table that they were moved from back, write them to the key's shard, then call shard_split_finish({id}) again."
            ),
        );
    }
    SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!(
            "partition {} was attached to table {table} on shard \"{source}\" with rows of key \"{}\" after the key had moved",
            found.table, found.key
        ),
        "The target does not have these rows. Detach the partition, write them to the key's shard, then call shard_split_finish again.",
    )
}

/// Returns the error for a source that may have accepted writes that the target does not have.
fn not_frozen(plan: &Plan, table: &str, detail: &str) -> SplitError {
    let (source, id) = (&plan.source.shard_key, plan.id);
    SplitError::Failed(
        Failure::new(
            SqlState::NOT_IN_STATE,
            format!("table {table} of shard \"{source}\" did not refuse stale clients all the time since the cutover"),
        )
        .detail(detail.to_owned())
        .hint(format!(
            "Rows that the target lacks were kept. Compare the table with shard \"{}\" and copy what is missing. Then SELECT shard_split_finish({id}, accept_missing => true) deletes its moved rows.",
            plan.target.shard_key
        )),
    )
}

/// The target's leaves, as a rollback finds them.
#[derive(Default)]
pub struct FoundLeaves {
    /// Those that only the split can have written moving rows to, by oid.
    pub own: Vec<String>,
    /// Names of those whose guard was changed.
    pub changed: Vec<String>,
    /// Tables whose rows are identified by another column or label than when they were copied, with what has changed.
    pub otherwise: Vec<String>,
    /// Names of relations that have copies, and no longer belong to the split's tables.
    pub elsewhere: Vec<String>,
    /// Those that no step has recorded, with the shard-by column: their rows were attached with them.
    attached: Vec<(String, Column)>,
}

/// Returns None if no step was committed. If `locked` is given, what is read of the leaves afterwards must be among
/// these tables.
pub fn found(
    target: &mut Connection,
    plan: &Plan,
    locked: Option<&LockedTables>,
) -> Result<Option<FoundLeaves>> {
    let progress = progress::stored(target, plan)?;
    let Some(progress) = progress.filter(|progress| progress.snapshot.is_some()) else { return Ok(None) };
    let now = seen::look(target, plan, Side::Target)?;
    if let Some(locked) = locked {
        locked.require_leaves(target.shard(), &now.tables)?;
    }
    let is_upgraded = progress.target_system.as_deref().is_some_and(|known| known != now.system());
    let key_identity = KeyIdentity::stored(&progress, &plan.scope, Side::Target);
    let (mut found, mut gone) = (FoundLeaves::default(), Vec::new());
    for ((policy, shape), table) in plan.tables.iter().zip(&now.tables).zip(&progress.tables) {
        let known = table.target_leaves.as_deref().unwrap_or_default();
        let is_there = |known: &TargetLeaf| shape.leaves().iter().any(|leaf| leaf.oid == known.oid);
        gone.extend(known.iter().filter(|known| !is_there(known)).map(|known| known.oid.clone()));
        if let Some(what) = key_identity.change(shape, &policy.shard_by) {
            found.otherwise.push(format!("{} ({what})", shape.name));
            continue;
        }
        // All of them are others, for example in a server restored from a dump: copies may be there.
        if !known.is_empty() && !known.iter().any(is_there) {
            found.changed.extend(shape.leaves().iter().map(|leaf| leaf.name.clone()));
            continue;
        }
        for leaf in shape.leaves() {
            let Some(before) = known.iter().find(|known| known.oid == leaf.oid) else {
                found
                    .attached
                    .extend(shape.column(&policy.shard_by).map(|by| (leaf.name.clone(), by.clone())));
                continue;
            };
            let same = is_upgraded || since(Some(&before.triggers), leaf) == Since::Same;
            if same && leaf.captured {
                found.own.push(leaf.oid.clone());
            } else {
                found.changed.push(leaf.name.clone());
            }
        }
    }
    found.elsewhere = still_there(target, &gone)?;
    Ok(Some(found))
}

/// Returns the names of relations that still exist: one that was dropped has no rows any more.
fn still_there(target: &mut Connection, oids: &[String]) -> Result<Vec<String>> {
    if oids.is_empty() {
        return Ok(Vec::new());
    }
    let oids = array_literal(oids);
    let rows = target.run(&format!(
        "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
          WHERE c.oid = ANY ({oids}::oid[]) ORDER BY 1"
    ))?;
    Ok(rows.column().collect())
}

impl FoundLeaves {
    pub fn has_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// Returns the names of the attached ones that have rows of the scope. The code that they could run was checked
    /// under their locks.
    pub fn attached_with_rows(&self, target: &mut Connection, plan: &Plan) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for (name, column) in &self.attached {
            names.extend(find_row(target, plan, column, name, true)?.map(|row| row.table));
        }
        Ok(names)
    }
}
