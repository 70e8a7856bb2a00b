//! The manual work of an operator that docs/operate/runbook-disasters.md describes.

use super::addresses::MASTER;
use super::site::Site;
use super::writers::{MOVING, TENANTS};
use crate::Result;
use crate::cluster::DATABASE;
use crate::matrix::name_tables;
use postgres::Client;
use std::time::SystemTime;

/// A row's number is the first word of its value.
pub const NUMBER: &str = "split_part(val, ' ', 1)::bigint";

/// Copies to the target what the source accepted since it came back without its fence. Newer rows are written
/// to the target, and deleted ones are deleted there. The queue has the keys and times, and the numbers show
/// which row is newer. `before` is the last number that was used before the source came back.
pub fn bring_over(site: &Site, split: i64, since: SystemTime, before: i64) -> Result<()> {
    let mut source = site.cluster.servers[0].superuser(DATABASE)?;
    let mut target = site.cluster.servers[1].superuser(DATABASE)?;
    let ordinals =
        "SELECT ordinal, table_name FROM shardmaster.split_table WHERE split_id = $1 ORDER BY ordinal";
    for row in site.cluster.superuser()?.query(ordinals, &[&split])? {
        let (ordinal, table): (i32, &str) = (row.get(0), row.get(1));
        let newest = format!("SELECT coalesce(max({NUMBER}), 0) FROM {table} WHERE tenant = $1");
        let newest: i64 = source.query_one(&newest, &[&TENANTS[MOVING]])?.get(0);
        let keys = format!(
            "SELECT DISTINCT q.k2, t.val, {NUMBER} FROM shardmaster_agent.queue_{split}_{ordinal} q
               LEFT JOIN {table} t ON t.tenant = q.k1 AND t.id = q.k2
              WHERE q.at >= $1 AND q.k1 = $2"
        );
        for key in source.query(&keys, &[&since, &TENANTS[MOVING]])? {
            let (id, val, number): (i32, Option<String>, Option<i64>) = (key.get(0), key.get(1), key.get(2));
            match val.zip(number) {
                Some((val, number)) => bring_row(&mut target, table, id, &val, number)?,
                None => {
                    let delete =
                        format!("DELETE FROM {table} WHERE tenant = $1 AND id = $2 AND {NUMBER} <= $3");
                    target.execute(&delete, &[&TENANTS[MOVING], &id, &newest.max(before)])?;
                }
            }
        }
    }
    Ok(())
}

fn bring_row(target: &mut Client, table: &str, id: i32, val: &str, number: i64) -> Result<()> {
    let query = format!("SELECT {NUMBER} FROM {table} WHERE tenant = $1 AND id = $2");
    let there = target.query_opt(&query, &[&TENANTS[MOVING], &id])?.map(|row| row.get::<_, i64>(0));
    if there.is_some_and(|there| there >= number) {
        return Ok(());
    }
    // Clients write to the target meanwhile. If they have deleted an item there, its note is gone as well.
    let values = match table {
        "items" => "VALUES ($1, $2, $3)",
        _ => "SELECT i.tenant, i.id, i.id, $3 FROM items i WHERE i.tenant = $1 AND i.id = $2 FOR KEY SHARE",
    };
    let put =
        format!("INSERT INTO {table} {values} ON CONFLICT (tenant, id) DO UPDATE SET val = EXCLUDED.val");
    target.execute(&put, &[&TENANTS[MOVING], &id, &val])?;
    Ok(())
}

/// Deletes the rows that a rollback has left on the target.
pub fn delete_copies(site: &Site) -> Result<()> {
    let mut target = site.cluster.servers[1].superuser(DATABASE)?;
    target.execute("DELETE FROM items WHERE tenant = $1", &[&TENANTS[MOVING]])?;
    Ok(())
}

/// The master and its catalog are gone. A new one is told of the shards, takes them over, removes what the
/// old one has left there, and routes the keys to where their rows are.
pub fn new_master(site: &mut Site) -> Result<()> {
    let open =
        "SELECT coalesce(bool_or(state = 'open'), false) FROM shardmaster_agent.side WHERE side = 'target'";
    let has_agent = "SELECT to_regclass('shardmaster_agent.side') IS NOT NULL";
    let rows = "SELECT count(*) FROM items WHERE tenant = $1";
    let mut source = site.cluster.servers[0].superuser(DATABASE)?;
    let mut target = site.cluster.servers[1].superuser(DATABASE)?;
    let is_open =
        target.query_one(has_agent, &[])?.get::<_, bool>(0) && target.query_one(open, &[])?.get::<_, bool>(0);
    let has_left = source.query_one(rows, &[&TENANTS[MOVING]])?.get::<_, i64>(0) == 0;
    let owner = usize::from(is_open || has_left);
    site.cluster.replace_master(&["fsync = off"])?;
    site.addresses.replace(MASTER, &site.cluster.master);
    site.addresses.outage_ends(MASTER);
    let mut master = site.cluster.superuser()?;
    name_tables(&mut master, "default")?;
    let home = ["shard_a", "shard_b"][owner];
    // The shards' knowledge of moved keys is adopted first. Until then nothing can be assigned.
    master.query("SELECT * FROM shard_adopt()", &[])?;
    for (tenant, shard) in TENANTS.iter().zip(["shard_a", "shard_b", home]) {
        master.execute("SELECT shard_assign($1, $2)", &[tenant, &shard])?;
    }
    for shard in ["shard_a", "shard_b"] {
        master.query("SELECT * FROM shard_cleanup($1)", &[&shard])?;
    }
    // Deletes the copies on the other shard, which are incomplete or not yet deleted.
    let other = if owner == 0 { &mut target } else { &mut source };
    for table in ["notes", "items"] {
        other.execute(&format!("DELETE FROM {table} WHERE tenant = $1"), &[&TENANTS[MOVING]])?;
    }
    Ok(())
}
