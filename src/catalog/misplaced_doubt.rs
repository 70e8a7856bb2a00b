//! `shardmaster.misplaced_doubt`: rows that are about to be on the right shard, until the master knows that they are
//! gone from the wrong one.

use crate::remote::transaction::Transaction;
use crate::server::sql;

/// One batch of rows, on both shards.
#[derive(Clone, Debug)]
pub struct DoubtedBatch {
    /// The transaction that inserts them on the right shard.
    pub arrived: Transaction,
    /// The transaction that deletes them on the wrong shard, or `None` if nothing of it could be asked after a crash.
    pub left: Option<Transaction>,
}

pub struct MoveDoubt {
    pub run: i64,
    pub way: DoubtedBatch,
    /// The keys of the run that are routed to the right shard.
    pub keys: Vec<String>,
    /// The number of rows of each table.
    pub tables: Vec<(String, u64)>,
}

pub fn insert(run: i64, routed_to: &str, way: &DoubtedBatch, table: &str, rows: u64) {
    let Transaction { xid, system_identifier, timeline, flushed } = way.arrived.clone();
    sql::write(
        "INSERT INTO shardmaster.misplaced_doubt (run_id, table_name, routed_to, xid, system_identifier, timeline, flushed, rows, left_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        &[
            run.into(),
            table.into(),
            routed_to.into(),
            xid.into(),
            system_identifier.into(),
            timeline.into(),
            flushed.into(),
            i64::try_from(rows).unwrap_or(i64::MAX).into(),
            way.left.clone().map(texts).into(),
        ],
    );
}

fn texts(transaction: Transaction) -> Vec<String> {
    let Transaction { xid, system_identifier, timeline, flushed } = transaction;
    vec![xid, system_identifier, timeline, flushed]
}

fn of_texts(texts: Vec<String>) -> Option<Transaction> {
    let [xid, system_identifier, timeline, flushed] = <[String; 4]>::try_from(texts).ok()?;
    Some(Transaction { xid, system_identifier, timeline, flushed })
}

/// Returns the doubts of runs that took rows from one shard to another, whatever became of the runs.
pub fn between(keyspace: &str, shard: &str, routed_to: &str) -> Vec<MoveDoubt> {
    sql::read(
        "SELECT d.run_id, d.xid, min(d.system_identifier), min(d.timeline), min(d.flushed),
                ARRAY(SELECT k.key FROM shardmaster.misplaced_key k WHERE k.run_id = d.run_id AND k.routed_to = d.routed_to),
                array_agg(d.table_name ORDER BY d.table_name), array_agg(d.rows ORDER BY d.table_name), min(d.left_by)
           FROM shardmaster.misplaced_doubt d JOIN shardmaster.misplaced_run r ON r.id = d.run_id
          WHERE r.keyspace = $1 AND r.shard = $2 AND d.routed_to = $3
          GROUP BY d.run_id, d.routed_to, d.xid ORDER BY d.run_id, d.xid",
        &[keyspace.into(), shard.into(), routed_to.into()],
        |row| {
            let (tables, rows): (Vec<String>, Vec<i64>) = (row.value(7), row.value(8));
            let arrived = Transaction {
                xid: row.value(2),
                system_identifier: row.value(3),
                timeline: row.value(4),
                flushed: row.value(5),
            };
            MoveDoubt {
                run: row.value(1),
                way: DoubtedBatch { arrived, left: row.get(9).and_then(of_texts) },
                keys: row.value(6),
                tables: tables.into_iter().zip(rows.into_iter().map(i64::unsigned_abs)).collect(),
            }
        },
    )
}

/// Removes all doubts of a run and returns how many there were.
pub fn forget(run: i64) -> usize {
    sql::write("DELETE FROM shardmaster.misplaced_doubt WHERE run_id = $1", &[run.into()])
}

/// Removes the doubts of runs that a run settles by having deleted all rows of its keys and tables on the wrong shard.
pub fn forget_deleted(run: i64, tables: &[String]) {
    sql::write(
        "DELETE FROM shardmaster.misplaced_doubt d USING shardmaster.misplaced_run o, shardmaster.misplaced_run r
          WHERE r.id = $1 AND o.id = d.run_id AND o.keyspace = r.keyspace AND o.shard = r.shard AND d.table_name = ANY ($2)
            AND NOT EXISTS (SELECT FROM shardmaster.misplaced_key k WHERE k.run_id = o.id AND k.routed_to = d.routed_to
                             AND NOT EXISTS (SELECT FROM shardmaster.misplaced_key m WHERE m.run_id = r.id AND m.key = k.key))",
        &[run.into(), tables.to_vec().into()],
    );
}
